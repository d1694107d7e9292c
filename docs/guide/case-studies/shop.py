"""A small shop: three pages of it."""
import html, json, re

PRODUCTS = [{"id": i, "name": f"Product {i}", "text": "lorem ipsum dolor sit amet " * 8} for i in range(400)]
WORD = re.compile(r"(\w+\s?)+$")


def listing():
    return json.dumps(PRODUCTS)


def page():
    return "".join(f"<li>{html.escape(p['name'])}</li>" for p in PRODUCTS)


def search():
    # Whether a name is words and blanks alone.
    return str(sum(1 for p in PRODUCTS[:30] if WORD.match(p["name"] + " of the year!")))


def app(environ, start_response):
    body = {"/listing": listing, "/page": page, "/search": search}[environ["PATH_INFO"]]().encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
