"""The demo page: curves, the plane of tasks, faces and navigation, with the published models.

`panels` computes what each part of the page shows, `routes` answers requests, `page/` is what the browser gets.
"""
