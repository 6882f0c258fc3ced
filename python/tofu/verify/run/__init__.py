"""Running an operator whole and in parts."""
