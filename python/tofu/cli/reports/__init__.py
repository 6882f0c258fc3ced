"""What commands print: lists, pages, reports, and plans one after the other."""
