"""A real Triton server with real clients: masks, faults, load, and a bundle that is replaced while it is served.

The server that a Python package carries has the Python backend only, so the engine of the ensemble runs there too, in
ONNX Runtime, with the configuration that was written for Triton's own backend.
"""

from __future__ import annotations

import io
import socket
import struct
import sys
import threading
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from conftest import package, skip
from google.protobuf import text_format
from nets import nchw, save
from PIL import Image

import trtpost as tp
from trtpost.triton.config import from_text
from trtpost.triton.export import export_triton

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a server for Linux only")

ENGINE = """
import json
from pathlib import Path
import onnxruntime
import triton_python_backend_utils as server

class TritonPythonModel:
    def initialize(self, args):
        self.outputs = [one["name"] for one in json.loads(args["model_config"])["output"]]
        folder = Path(args["model_repository"]) / args["model_version"]
        self.session = onnxruntime.InferenceSession(folder / "model.onnx")

    def execute(self, requests):
        names = [one.name for one in self.session.get_inputs()]
        answers = []
        for request in requests:
            feeds = {name: server.get_input_tensor_by_name(request, name).as_numpy() for name in names}
            results = self.session.run(self.outputs, feeds)
            answers.append(server.InferenceResponse([server.Tensor(n, v) for n, v in zip(self.outputs, results)]))
        return answers
"""


def photo(height: int, width: int, seed: int = 0, kind: str = "JPEG") -> bytes:
    """An image file of smooth colours."""
    small = np.random.default_rng(seed).integers(0, 256, (6, 7, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC).save(stream, kind)
    return stream.getvalue()


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles")
    source = save(nchw(), folder / "net.onnx")
    return [
        tp.build(source, folder / f"{match}.trtpost", match=match, flavour="none") for match in ("tf", "tf1", "pil")
    ]


@pytest.fixture(scope="module")
def served(bundles, tmp_path_factory):
    """A server of `net` and of the ensemble `steps`: (address, process, repository)."""
    package("tritonclient.http")
    triton_server = package("triton_server")
    folder = tmp_path_factory.mktemp("served")
    repository = folder / "models"
    export_triton(bundles[0], repository, name="net", max_batch=8)
    _, engine, _ = export_triton(bundles[2], repository, name="steps", form="onnxruntime_onnx")
    card = engine.parent / "config.pbtxt"
    config = from_text(card.read_text(), str(card))
    config.backend, config.platform = "python", ""
    card.write_text(text_format.MessageToString(config))
    (engine / "model.py").write_text(ENGINE)
    try:
        triton_server.install()
    except (RuntimeError, KeyError) as error:
        skip(str(error))
    with triton_server.running(repository, folder / "log.txt", poll=True) as (address, process):
        _wait(lambda: all(ready(address, name, "1") for name in ("net", "steps")))
        yield address, process, repository


def ready(address: str, model: str, version: str) -> bool:
    from tritonclient import http

    client = http.InferenceServerClient(address)
    try:
        return bool(client.is_model_ready(model, version))
    finally:
        client.close()


def _wait(until) -> None:
    for _ in range(300):
        if until():
            return
        time.sleep(0.1)
    pytest.fail("the server is not so far after half a minute")


@pytest.fixture
def client(served):
    from tritonclient import http

    client = http.InferenceServerClient(served[0], network_timeout=60, connection_timeout=60)
    yield client
    client.close()


def given(name: str, value: np.ndarray, kind: str = "UINT8"):
    from tritonclient import http

    tensor = http.InferInput(name, value.shape, kind)
    tensor.set_data_from_numpy(value)
    return tensor


def files(*contents: bytes):
    value = np.empty((len(contents), 1), np.object_)
    value[:, 0] = contents
    return given("photo", value, "BYTES")


def wanted(*names: str):
    from tritonclient import http

    return [http.InferRequestedOutput(name) for name in names]


def test_masks_are_those_of_infer(client, bundles):
    segmenter = tp.Segmenter(bundles[0])
    for seed, (height, width, kind) in enumerate(
        [(480, 640, "JPEG"), (33, 1, "PNG"), (1, 70, "WEBP"), (301, 97, "JPEG"), (3024, 4032, "JPEG")]
    ):
        content = photo(height, width, seed, kind)
        expected = segmenter(content)
        found = client.infer("net", [files(content)], outputs=wanted("mask", "png"))
        np.testing.assert_array_equal(found.as_numpy("mask"), expected.mask[None])
        with Image.open(io.BytesIO(found.as_numpy("png")[0, 0])) as png:
            np.testing.assert_array_equal(np.asarray(png), expected.mask)
        pixels = client.infer("net", [given("image", expected.photo[None])], outputs=wanted("mask"))
        np.testing.assert_array_equal(pixels.as_numpy("mask"), expected.mask[None])


def test_an_ensemble_gives_the_same_mask(client, bundles):
    content = photo(200, 333)
    given_alone = given("photo", np.array([content], np.object_), "BYTES")  # this engine's requests are not joined
    found = client.infer("steps", [given_alone], outputs=wanted("mask"))
    np.testing.assert_array_equal(found.as_numpy("mask"), tp.Segmenter(bundles[2])(content).mask[None])


def test_several_photos_in_one_request(client, bundles):
    segmenter, contents = tp.Segmenter(bundles[0]), [photo(60, 80, seed) for seed in range(3)]
    found = client.infer("net", [files(*contents)], outputs=wanted("mask", "png"))
    np.testing.assert_array_equal(found.as_numpy("mask"), [segmenter(one).mask for one in contents])
    assert found.as_numpy("png").shape == (3, 1)


def malformed():
    from tritonclient import http

    whole = photo(300, 400)
    bomb = bytearray(photo(1, 1, kind="PNG"))
    bomb[16:24] = struct.pack(">II", 65536, 65536)  # its header says so, and the checksum agrees
    bomb[29:33] = struct.pack(">I", zlib.crc32(bomb[12:29]))
    both = [files(whole), given("image", np.zeros((1, 4, 4, 3), np.uint8))]
    flat = http.InferInput("image", [4, 4, 3], "UINT8")
    flat.set_data_from_numpy(np.zeros((4, 4, 3), np.uint8))
    return [
        ([files(whole[: len(whole) // 2])], "damaged or cut short"),
        ([files(b"no image at all")], "not a photo"),
        ([files(b"")], "zero bytes|empty|not an image"),
        ([files(bytes(bomb))], "million pixels"),
        ([files(whole, photo(30, 40))], "must have one size"),
        ([files(whole, b"")], "empty|zero bytes|not an image"),
        (both, "and not both"),
        ([flat], "shape|dims"),
        ([given("image", np.zeros((1, 4, 4, 1), np.uint8))], "shape"),
        ([given("image", np.zeros((1, 4, 4, 3), np.float32), "FP32")], "data-?type|type"),
        ([given("image", np.zeros((1, 0, 4, 3), np.uint8))], "shape|array|empty"),
        ([given("picture", np.zeros((1, 4, 4, 3), np.uint8))], "picture"),
    ]


def test_a_bad_request_is_told_so_and_nobody_else_is(served, client, bundles):
    from tritonclient.utils import InferenceServerException

    address = served[0]
    content = photo(120, 160)
    expected = tp.Segmenter(bundles[0])(content).mask[None]
    stop, wrong = threading.Event(), []

    def others() -> None:
        from tritonclient import http

        with http.InferenceServerClient(address, network_timeout=60) as mine:
            while not stop.is_set():
                try:
                    found = mine.infer("net", [files(content)], outputs=wanted("mask")).as_numpy("mask")
                    wrong.extend([] if np.array_equal(found, expected) else ["another mask"])
                except Exception as error:
                    wrong.append(str(error))

    threads = [threading.Thread(target=others) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for inputs, message in malformed():
            with pytest.raises(InferenceServerException, match=message) as error:
                client.infer("net", inputs, outputs=wanted("mask"))
            assert "Traceback" not in str(error.value)
        for sent in (b"", b"{}", b"{", b"\0" * 100):  # not even a request
            assert _post(address, sent) >= 400
        for _ in range(10):
            _hang_up(address, content)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong


def _post(address: str, body: bytes) -> int:
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as link:
        head = f"POST /v2/models/net/infer HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
        link.sendall(head.encode() + body)
        return int(link.recv(4096).split()[1])


def _hang_up(address: str, content: bytes) -> None:
    """Send a request and go, half of it or all of it, without waiting for the answer."""
    from tritonclient import http

    body, header = http.InferenceServerClient.generate_request_body([files(content)], outputs=wanted("mask"))
    host, port = address.split(":")
    for part in (len(body) // 2, len(body)):
        with socket.create_connection((host, int(port)), timeout=30) as link:
            head = (
                f"POST /v2/models/net/infer HTTP/1.1\r\nHost: {host}\r\nInference-Header-Content-Length: {header}\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            link.sendall(head.encode() + body[:part])


def test_a_photo_of_a_hundred_megapixels(client, bundles):
    content = photo(10_000, 10_000)
    found = client.infer("net", [files(content)], outputs=wanted("mask"))
    expected = tp.Segmenter(bundles[0])(content).mask
    np.testing.assert_array_equal(found.as_numpy("mask"), expected[None])


def test_many_clients_and_memory_that_does_not_grow(served):
    serve_load = package("serve_load")
    address, process, _ = served
    photos = [photo(480, 640, seed) for seed in range(4)]
    serve_load.load(address, process, "net", photos, clients=8, seconds=1)
    found = serve_load.load(address, process, "net", photos, clients=8, seconds=4)
    assert found.errors == ()
    assert len(found.milliseconds) > 8
    assert found.grown < 32 << 20
    assert "p99" in found.row()


def test_a_bundle_replaced_while_it_is_served(served, client, bundles):
    serve_load = package("serve_load")
    address, process, repository = served
    content = photo(100, 150)
    before, after = (tp.Segmenter(bundle)(content).mask[None] for bundle in bundles[:2])
    assert not np.array_equal(before, after)
    loads = []
    work = threading.Thread(
        target=lambda: loads.append(serve_load.load(address, process, "net", [content], clients=2, seconds=5))
    )
    work.start()
    np.testing.assert_array_equal(serve_load.ask(client, "net", content, "mask"), before)
    (version,) = export_triton(bundles[1], repository, name="net", max_batch=8)
    assert version.name == "2"
    _wait(lambda: ready(address, "net", "2"))
    work.join()
    np.testing.assert_array_equal(serve_load.ask(client, "net", content, "mask"), after)
    assert loads[0].errors == ()
    assert client.get_model_metadata("net")["versions"] == ["2"]
