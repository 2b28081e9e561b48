"""A Hub in memory, over HTTP on loopback: what huggingface_hub asks in order to push, list and load models.

It keeps what it is sent, and checks what the real one checks: a token for writing and for private repositories, the
front matter of a card, that binary files come as LFS objects, and that these have the SHA-256 they claim. What it
does not know is answered with 404 and noted in `unknown`. hf_xet speaks with servers of another kind, so clients are
told to leave it alone:

    with Hub() as hub:
        subprocess.run(..., env={**os.environ, **hub.client})
    hub.repositories["me/my-model"].files("main")
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

# As in every new repository: what git keeps elsewhere.
LARGE_FILES = ("*.bin", "*.npz", "*.onnx", "*.safetensors")
ATTRIBUTES = "".join(f"{name} filter=lfs diff=lfs merge=lfs -text\n" for name in LARGE_FILES)


# ---- what is kept


@dataclass(frozen=True)
class File:
    content: bytes
    lfs: bool = False

    @property
    def oid(self) -> str:
        """The SHA-256 of an LFS object, else the SHA-1 that git gives a blob."""
        if self.lfs:
            return hashlib.sha256(self.content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(self.content) + self.content).hexdigest()


@dataclass(frozen=True)
class Commit:
    title: str
    changed: list[str]  # the paths that were sent
    files: dict[str, File]  # all that stand there now


@dataclass
class Repository:
    """Commits by their ids, oldest first, and which of them branches and tags stand for."""

    private: bool = False
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.commit("main", "initial commit", {".gitattributes": File(ATTRIBUTES.encode())})

    def commit(self, branch: str, title: str, changed: dict[str, File], deleted: Collection[str] = ()) -> str:
        before = self.commits[self.branches[branch]].files if branch in self.branches else {}
        before = {path: file for path, file in before.items() if path not in deleted}
        sha = hashlib.sha1(f"{len(self.commits)} {branch} {title}".encode()).hexdigest()
        self.commits[sha] = Commit(title, sorted(changed), dict(sorted((before | changed).items())))
        self.branches[branch] = sha
        return sha

    def sha(self, revision: str) -> str:
        """The commit that a branch, a tag or a commit's own id names."""
        sha = self.branches.get(revision) or self.tags.get(revision) or revision
        if sha not in self.commits:
            raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return sha

    def files(self, revision: str = "main") -> dict[str, File]:
        return self.commits[self.sha(revision)].files


# ---- requests and answers


class Refusal(Exception):
    """An answer that is an error; `code` is the word by which the client tells one 404 from another."""

    def __init__(self, status: int, message: str, code: str = "", **headers: str) -> None:
        super().__init__(message)
        self.status, self.headers = status, {"X-Error-Message": message, "X-Error-Code": code, **headers}


@dataclass
class Answer:
    """Bytes as they are, or anything else as JSON."""

    content: Any = field(default_factory=dict)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class Request(BaseHTTPRequestHandler):
    """One request after another over one connection."""

    protocol_version = "HTTP/1.1"
    server: Hub

    def respond(self) -> None:
        self.body = b"".join(self._pieces())  # read in any case: the connection's next request stands behind it
        try:
            answer = self.server.answer(self)
        except Refusal as refusal:
            answer = Answer({"error": str(refusal)}, refusal.status, refusal.headers)
        raw = isinstance(answer.content, bytes)
        content = answer.content if raw else json.dumps(answer.content).encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/octet-stream" if raw else "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_PUT = respond

    def _pieces(self) -> Iterator[bytes]:
        """What was sent: in chunks, each after its size, or as one piece."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            yield self.rfile.read(int(self.headers.get("Content-Length", 0)))
            return
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def json(self) -> dict[str, Any]:
        return json.loads(self.body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing on stderr: the server keeps `requests`."""


ROUTES: list[tuple[str, re.Pattern[str], Callable[..., Answer]]] = []
PARTS = {"repo": r"[^/]+/[^/]+?", "path": r".+"}


def route(method: str, template: str) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Marks the method of `Hub` that answers such requests: the {names} in the address are its arguments."""
    pattern = re.sub(r"{(\w+)}", lambda name: f"(?P<{name[1]}>{PARTS.get(name[1], '[^/]+')})", template)

    def register(answer: Callable[..., Answer]) -> Callable[..., Answer]:
        ROUTES.append((method, re.compile(pattern), answer))
        return answer

    return register


class Hub(ThreadingHTTPServer):
    """Listens from `with` on; `client` are the environment variables of those who speak with it."""

    daemon_threads = True

    def __init__(self, user: str = "me") -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.user, self.url = user, f"http://127.0.0.1:{self.server_port}"
        self.storage = f"http://localhost:{self.server_port}"  # another host to the client, as the Hub's storage is
        self.client = {
            "HF_ENDPOINT": self.url,
            "HF_TOKEN": "hf_of_the_tests",
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }
        self.repositories: dict[str, Repository] = {}
        self.objects: dict[str, bytes] = {}  # of LFS, by their SHA-256
        self.requests: list[str] = []
        self.unknown: list[str] = []
        self._lock = Lock()

    def __enter__(self) -> Hub:
        Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    def answer(self, request: Request) -> Answer:
        path = urlsplit(request.path).path
        method = "GET" if request.command == "HEAD" else request.command
        with self._lock:
            self.requests.append(f"{request.command} {path}")
            for known, pattern, answer in ROUTES:
                if known == method and (match := pattern.fullmatch(path)):
                    return answer(self, request, **{name: unquote(part) for name, part in match.groupdict().items()})
            self.unknown.append(f"{request.command} {path}")
            raise Refusal(404, f"no such address: {path}")

    # ---- who may do what

    def knows(self, request: Request) -> bool:
        return request.headers.get("Authorization") == f"Bearer {self.client['HF_TOKEN']}"

    def readable(self, request: Request, repo: str) -> Repository:
        """The repository; a private one is not there for those who may not read it."""
        repository = self.repositories.get(repo)
        if repository is None or (repository.private and not self.knows(request)):
            raise Refusal(404 if self.knows(request) else 401, "Repository not found", "RepoNotFound")
        return repository

    def check_writer(self, request: Request, repo: str) -> None:
        if not self.knows(request):
            raise Refusal(401, "Invalid username or password.")
        if not repo.startswith(f"{self.user}/"):
            raise Refusal(403, f"You don't have the rights to write to {repo}")

    def writable(self, request: Request, repo: str) -> Repository:
        self.check_writer(request, repo)
        return self.readable(request, repo)

    # ---- repositories

    @route("GET", "/api/agent-harnesses")
    def agent_harnesses(self, request: Request) -> Answer:
        """What the client asks once a day."""
        return Answer({"standardEnvVars": [], "harnesses": {}})

    @route("GET", "/api/whoami-v2")
    def whoami(self, request: Request) -> Answer:
        self.check_writer(request, f"{self.user}/")
        return Answer({"type": "user", "name": self.user, "orgs": []})

    @route("POST", "/api/repos/create")
    def create(self, request: Request) -> Answer:
        asked = request.json()
        repo = f"{asked.get('organization') or self.user}/{asked['name']}"
        self.check_writer(request, repo)
        is_new = repo not in self.repositories
        if is_new:
            self.repositories[repo] = Repository(private=asked.get("visibility") == "private")
        return Answer({"name": repo, "url": f"{self.url}/{repo}"}, 200 if is_new else 409)

    @route("GET", "/api/models/{repo}")
    @route("GET", "/api/models/{repo}/revision/{revision}")
    def info(self, request: Request, repo: str, revision: str = "main") -> Answer:
        repository = self.readable(request, repo)
        files = repository.files(revision)
        card = front_matter(files["README.md"].content.decode()) if "README.md" in files else {}
        return Answer(
            {
                "id": repo,
                "sha": repository.sha(revision),
                "private": repository.private,
                "tags": card.get("tags", []),
                "library_name": card.get("library_name"),
                "siblings": [{"rfilename": path} for path in files],
            }
        )

    @route("GET", "/api/models/{repo}/refs")
    def refs(self, request: Request, repo: str) -> Answer:
        repository = self.readable(request, repo)

        def listed(folder: str, refs: dict[str, str]) -> list[dict[str, str]]:
            return [{"name": name, "ref": f"refs/{folder}/{name}", "targetCommit": sha} for name, sha in refs.items()]

        branches, tags = listed("heads", repository.branches), listed("tags", repository.tags)
        return Answer({"branches": branches, "tags": tags, "converts": []})

    @route("POST", "/api/models/{repo}/branch/{branch}")
    def create_branch(self, request: Request, repo: str, branch: str) -> Answer:
        repository = self.writable(request, repo)
        if branch in repository.branches:
            raise Refusal(409, f"Reference already exists: {branch}")
        repository.branches[branch] = repository.sha(request.json().get("startingPoint", "main"))
        return Answer()

    @route("POST", "/api/models/{repo}/tag/{revision}")
    def create_tag(self, request: Request, repo: str, revision: str) -> Answer:
        repository, tag = self.writable(request, repo), request.json()["tag"]
        if tag in repository.tags:
            raise Refusal(409, f"Tag reference exists already: {tag}")
        repository.tags[tag] = repository.sha(revision)
        return Answer()

    # ---- pushing

    @route("POST", "/api/validate-yaml")
    def validate_yaml(self, request: Request) -> Answer:
        try:
            card = front_matter(request.json()["content"])
        except ValueError as error:
            return Answer({"errors": [{"message": str(error)}], "warnings": []}, 400)
        warnings = [] if card else [{"message": "empty or missing yaml metadata in repo card"}]
        return Answer({"errors": [], "warnings": warnings})

    @route("POST", "/api/models/{repo}/preupload/{revision}")
    def preupload(self, request: Request, repo: str, revision: str) -> Answer:
        """Which files are to come as LFS objects, and the ids of those that are here already."""
        files = self.writable(request, repo).files(revision)
        attributes = files[".gitattributes"].content.decode().splitlines()
        patterns = [line.split()[0] for line in attributes if "filter=lfs" in line]
        answers = []
        for path in (asked["path"] for asked in request.json()["files"]):
            lfs = any(fnmatch(path.rpartition("/")[2], pattern) for pattern in patterns)
            known = {"oid": files[path].oid} if path in files else {}
            answers.append({"path": path, "uploadMode": "lfs" if lfs else "regular", "shouldIgnore": False, **known})
        return Answer({"files": answers})

    @route("POST", "/{repo}.git/info/lfs/objects/batch")
    def lfs_batch(self, request: Request, repo: str) -> Answer:
        """Where to send the objects that are not here yet."""
        self.writable(request, repo)
        objects = request.json()["objects"]
        for wanted in objects:
            if wanted["oid"] not in self.objects:
                upload, verify = f"{self.storage}/objects/{wanted['oid']}", f"{self.url}/{repo}.git/info/lfs/verify"
                wanted["actions"] = {"upload": {"href": upload}, "verify": {"href": verify}}
        return Answer({"transfer": "basic", "objects": objects})

    @route("PUT", "/objects/{oid}")
    def lfs_upload(self, request: Request, oid: str) -> Answer:
        check_no_token(request)
        if hashlib.sha256(request.body).hexdigest() != oid:
            raise Refusal(400, f"this content has another SHA-256 than {oid}")
        self.objects[oid] = request.body
        return Answer()

    @route("POST", "/{repo}.git/info/lfs/verify")
    def lfs_verify(self, request: Request, repo: str) -> Answer:
        self.writable(request, repo)
        asked = request.json()
        if len(self.objects.get(asked["oid"], b"")) != asked["size"]:
            raise Refusal(404, f"no object {asked['oid']} of {asked['size']} bytes")
        return Answer()

    @route("POST", "/api/models/{repo}/commit/{branch}")
    def commit(self, request: Request, repo: str, branch: str) -> Answer:
        """Lines of JSON: a header, then the files that are sent or deleted."""
        repository = self.writable(request, repo)
        if branch not in repository.branches:
            raise Refusal(404, f"Invalid rev id: {branch}", "RevisionNotFound")
        header, *operations = map(json.loads, request.body.splitlines())
        changed: dict[str, File] = {}
        deleted = {each["value"]["path"] for each in operations if each["key"] == "deletedFile"}
        for each in operations:
            if each["key"] != "deletedFile":
                changed[each["value"]["path"]] = self._sent_file(each["key"], each["value"])
        sha = repository.commit(branch, header["value"]["summary"], changed, deleted)
        return Answer({"success": True, "commitOid": sha, "commitUrl": f"{self.url}/{repo}/commit/{sha}"})

    def _sent_file(self, key: str, value: dict[str, Any]) -> File:
        if key == "lfsFile" and value["oid"] in self.objects:
            return File(self.objects[value["oid"]], lfs=True)
        if key != "file":
            raise Refusal(400, f"{key} {value['path']}: neither a text nor an object that was uploaded")
        content = base64.b64decode(value["content"])
        if b"\0" in content:
            raise Refusal(400, f"Your push was rejected because it contains binary files: {value['path']}")
        return File(content)

    # ---- loading

    @route("GET", "/api/models/{repo}/tree/{revision}")
    @route("GET", "/api/models/{repo}/tree/{revision}/{path}")
    def tree(self, request: Request, repo: str, revision: str, path: str = "") -> Answer:
        """The files of a folder and of those below it."""
        files = self.readable(request, repo).files(revision)
        listed = {name: file for name, file in files.items() if not path or name.startswith(f"{path}/")}
        if not listed:
            raise Refusal(404, f"{path} does not exist on {revision}", "EntryNotFound")
        entries = []
        for name, file in listed.items():
            size = len(file.content)
            large = {"lfs": {"oid": file.oid, "size": size, "pointerSize": 134}} if file.lfs else {}
            entries.append({"type": "file", "path": name, "size": size, "oid": file.oid, **large})
        return Answer(entries)

    @route("GET", "/{repo}/resolve/{revision}/{path}")
    def resolve(self, request: Request, repo: str, revision: str, path: str) -> Answer:
        """A text as it stands, of an LFS object its place."""
        repository = self.readable(request, repo)
        files, sha = repository.files(revision), {"X-Repo-Commit": repository.sha(revision)}
        if path not in files:
            raise Refusal(404, "Entry not found", "EntryNotFound", **sha)
        file = files[path]
        tag = f'"{file.oid}"'
        if not file.lfs:
            return Answer(file.content, headers={**sha, "ETag": tag})
        linked = {"X-Linked-ETag": tag, "X-Linked-Size": str(len(file.content))}
        return Answer(b"", 302, {**sha, **linked, "Location": f"{self.storage}/objects/{file.oid}"})

    @route("GET", "/objects/{oid}")
    def lfs_download(self, request: Request, oid: str) -> Answer:
        check_no_token(request)
        if oid not in self.objects:
            raise Refusal(404, f"no object {oid}")
        return Answer(self.objects[oid], headers={"ETag": f'"{oid}"'})


def check_no_token(request: Request) -> None:
    if "Authorization" in request.headers:
        raise Refusal(400, "a token for the Hub has no business at the storage")


def front_matter(card: str) -> dict[str, Any]:
    """The metadata of a card, empty where it has none; ValueError where the Hub would not take them."""
    match = re.match(r"---\r?\n(.*?)\r?\n---(\r?\n|$)", card, re.DOTALL)
    if match is None:
        return {}
    try:
        metadata = yaml.safe_load(match[1])
    except yaml.YAMLError as error:
        raise ValueError(f"the front matter is no YAML: {error}") from None
    if not isinstance(metadata, dict):
        raise ValueError("the front matter must be an object")
    for name, kind in {"tags": list, "library_name": str, "model-index": list}.items():
        if name in metadata and not isinstance(metadata[name], kind):
            raise ValueError(f'"{name}" must be a {kind.__name__}, not {metadata[name]!r}')
    return metadata
