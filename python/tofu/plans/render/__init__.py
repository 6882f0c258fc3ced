"""Plans for people: text, HTML, pictures of tiles, explanations."""
