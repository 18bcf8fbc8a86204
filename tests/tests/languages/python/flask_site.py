"""A site on Flask: pages, forms, sessions, streams and downloads."""

import os

from flask import Flask, Response, jsonify, redirect, request, send_file, session, stream_with_context, url_for

FOLDER = os.path.dirname(os.path.abspath(__file__))

application = Flask(__name__)
application.secret_key = "for the tests"


@application.get("/")
def index():
    return "<h1>The shop</h1>" + "".join(f"<p>Item {number}</p>" for number in range(2000))


@application.get("/json")
def as_json():
    return jsonify(arguments=request.args, url=request.url, root=request.root_path != "")


@application.get("/download")
def download():
    return send_file(os.path.join(FOLDER, "a"), mimetype="image/png", conditional="range" in request.args)


@application.get("/attachment")
def attachment():
    return send_file(os.path.join(FOLDER, "a"), as_attachment=True, download_name="caf\u00e9.bin", max_age=60)


@application.get("/stream")
def stream():
    def lines():
        for number in range(100):
            yield f"{request.args['name']} {number}\n"

    return Response(stream_with_context(lines()), mimetype="text/plain")


@application.post("/form")
def form():
    session["name"] = request.form["name"]
    return redirect(url_for("who"))


@application.get("/who")
def who():
    return session.get("name", "nobody has told")


@application.post("/upload")
def upload():
    data = request.files["file"].read()
    return {"length": len(data), "sum": sum(data), "name": request.files["file"].filename}


@application.put("/raw")
def raw():
    return request.get_data(), 201, {"X-Length": str(request.content_length)}


@application.get("/error")
def error():
    return 1 / 0
