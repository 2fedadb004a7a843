"""
The style sheet, the scripts and the icon of the pages, served from the package: nothing is loaded from anywhere else.
"""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from stepscope_sidecar.pages.html import STATIC

TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
"""What is given out, by how its name ends."""

FRESH = "no-cache"
"""A browser asks each time: pages and files are of one release. They are a few kB."""

FILES = {path.name: path for path in STATIC.iterdir() if path.suffix in TYPES}


def static(request: Request) -> Response:
    """
    One of the files, by its name.
    """
    path = FILES.get(request.path_params["name"])
    if path is None:
        raise HTTPException(404, "no such file")
    return FileResponse(path, media_type=TYPES[path.suffix], headers={"cache-control": FRESH})


def route() -> Route:
    """
    Where they are.
    """
    return Route("/static/{name}", static)
