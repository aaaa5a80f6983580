"""Watching runs: files to rows, rows to a view, the view to lines; and rows to other trackers."""
