"""A page to play with: curves, the plane of tasks, faces and navigation, by the published models.

`panels` computes what each part of the page shows, `routes` answers requests, `page/` is what the browser gets.
"""
