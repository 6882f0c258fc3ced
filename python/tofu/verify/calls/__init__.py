"""The example calls beside the descriptions: all of them, and values to run them on."""
