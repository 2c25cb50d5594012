"""Models of PyTorch: modules and state dicts, published and attached. Skipped where PyTorch is missing."""
import contextlib
import gc
import struct
import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is missing")

import gvmem  # noqa: E402
import gvmem.torch  # noqa: E402
from conftest import MIB  # noqa: E402

class Net(torch.nn.Module):
    """Tied weights, buffers, a memory format."""

    def __init__(self, width=16):
        super().__init__()
        self.embed = torch.nn.Embedding(100, width)
        self.norm = torch.nn.BatchNorm1d(width)
        self.head = torch.nn.Linear(width, 100)
        self.head.weight = self.embed.weight
        self.pixels = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
        self.register_buffer("scale", torch.ones(3, dtype=torch.bfloat16))
        self.register_buffer("lost", torch.ones(3), persistent=False)

    def forward(self, x):
        return self.head(self.norm(self.embed(x)))


def make_net():
    torch.manual_seed(3)
    return Net().eval()


@pytest.fixture
def publish(keeper):
    names = []

    def call(model, name="/model", **more):
        gvmem.torch.publish(model, name, keeper=keeper, **more)
        names.append(name)

    yield call
    gc.collect()  # exceptions that a test has caught keep its models
    for name in set(names):
        try:
            keeper.drop(name)
        except gvmem.errors.Keeper:  # the test has failed, and its keeper is gone
            pass


def dtypes():
    return [getattr(torch, name) for name in gvmem.torch._NAMES.values() if hasattr(torch, name)]


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and bytes_of(a) == bytes_of(b)


def bytes_of(tensor):
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""


@pytest.mark.parametrize("dtype", dtypes(), ids=str)
@pytest.mark.parametrize("shape", [(), (6,), (3, 4), (0,), (2, 0)], ids=str)
def test_tensor_is_what_it_was(keeper, publish, dtype, shape):
    given = torch.randint(0, 2, shape).to(dtype)
    publish({"first": torch.ones(1), "x": given})
    model = gvmem.torch.attach("/model", keeper=keeper)
    assert same(model["x"], given) and model["x"].stride() == given.stride() and not model["x"].requires_grad
    assert model["x"] is model["x"]


def test_strides_and_gaps(keeper, publish):
    base = torch.arange(120.).reshape(2, 3, 4, 5)
    given = {"turned": base.permute(3, 1, 0, 2), "last": base.contiguous(memory_format=torch.channels_last), "gaps": base[..., ::2].clone()[..., :2],
             "expanded": torch.ones(3).expand(4, 3), "conj": torch.randn(4, dtype=torch.complex64).conj(), "neg": torch.randn(3, dtype=torch.complex64).conj().imag}
    publish(given)
    model = gvmem.torch.attach("/model", keeper=keeper)
    assert all(torch.equal(model[key], wanted) for key, wanted in given.items())
    assert model["turned"].stride() == given["turned"].stride() and model["last"].is_contiguous(memory_format=torch.channels_last)
    assert model["gaps"].is_contiguous() and model["expanded"].is_contiguous()


def test_tied_tensors_are_one(keeper, publish):
    weight = torch.nn.Parameter(torch.randn(8, 4))
    publish({"a": weight, "b": weight, "turned": weight.t(), "row": weight[1], "other": weight.detach().clone()})
    model = gvmem.torch.attach("/model", keeper=keeper)
    assert model["a"] is model["b"] and model["turned"].data_ptr() == model["a"].data_ptr() != model["other"].data_ptr()
    assert model["row"].data_ptr() == model["a"].data_ptr() + 16 and torch.equal(model["turned"], weight.t())


def test_module_is_filled_without_a_copy(keeper, publish):
    net, x = make_net(), torch.arange(10)
    publish(net)
    with torch.device("meta"):
        other = Net().eval()
    other.lost = torch.ones(3)
    model = gvmem.torch.attach("/model", keeper=keeper, module=other)
    assert torch.equal(other(x), net(x)) and other.head.weight is other.embed.weight
    assert all(model.address <= tensor.data_ptr() < model.address + model.size for tensor in other.parameters())
    assert model.address <= other.norm.running_mean.data_ptr() < model.address + model.size and other.scale.dtype == torch.bfloat16
    assert not any(parameter.requires_grad for parameter in other.parameters())
    assert other.pixels.weight.is_contiguous(memory_format=torch.channels_last)
    assert "lost" not in model and set(model) == set(net.state_dict())


def test_module_that_fits_not_is_refused(keeper, publish):
    publish(make_net())
    with torch.device("meta"):
        other = Net()
    with pytest.raises(RuntimeError, match='"meta": lost'):
        gvmem.torch.attach("/model", keeper=keeper, module=other)
    with pytest.raises(RuntimeError, match="[Mm]issing.*bias"):
        gvmem.torch.attach("/model", keeper=keeper, module=torch.nn.Linear(3, 3))
    with pytest.raises(RuntimeError, match="size mismatch"):
        gvmem.torch.attach("/model", keeper=keeper, module=Net(width=8))
    gc.collect()
    assert keeper.objects()[0].read_leases == 0
    gvmem.torch.attach("/model", keeper=keeper, module=other, strict=False).close()


@pytest.mark.parametrize("width, device", [(8, "cpu"), (16, "meta")])
def test_module_that_fits_not_stays_as_it_was(keeper, publish, width, device):
    """Whether shapes differ or something is missing: what is its own it keeps, and can load anew."""
    publish(make_net())
    with torch.device(device):
        net = Net(width)
    before = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    with pytest.raises(RuntimeError, match="size mismatch|lost"):
        gvmem.torch.attach("/model", keeper=keeper, module=net)
    after = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    assert all(after[key] is tensor for key, tensor in before.items()) and net.head.weight is net.embed.weight
    gc.collect()
    assert [info.read_leases for info in keeper.objects()] == [0]


def test_tensor_out_of_line_is_refused(keeper):
    """As an array is: a kernel that reads it would lose the context."""
    text = b'{"x":{"dtype":"F64","shape":[2],"data_offsets":[1,17]},"y":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}'.ljust(248)
    with keeper.create("/forged", 4096, metadata=b"gvmem-model 1 2 ") as obj:
        obj.copy_in(struct.pack("<Q", len(text)) + text)
        obj.seal()
        model = gvmem.torch.attach("/forged", keeper=keeper)
        with pytest.raises(ValueError, match="not aligned"):
            model["x"]
        assert model["y"].tolist() == [0, 0]
        model.close()
    keeper.drop("/forged")


def test_module_keeps_its_model_awake(keeper, publish):
    net, x = make_net(), torch.arange(10)
    publish(net)
    other = Net().eval()
    gvmem.torch.attach("/model", keeper=keeper, module=other)
    gc.collect()
    assert keeper.objects()[0].read_leases == 1 and torch.equal(other(x), net(x))
    del other
    gc.collect()
    assert keeper.objects()[0].read_leases == 0


def test_module_runs_on_after_sleep_and_wake_at_its_addresses(keeper, publish, start_child):
    """Two modules under a budget for one, in two processes each."""
    nets = {}
    for number, name in enumerate(("/a", "/b")):
        torch.manual_seed(number)
        nets[name] = torch.nn.Linear(5 * MIB // 8, 8, bias=False)  # 20 MiB
        publish(nets[name], name)
    x = torch.ones(5 * MIB // 8)
    program = """
import torch, gvmem.torch
net = torch.nn.Linear(5 * (1 << 20) // 8, 8, bias=False, device="meta")
model = gvmem.torch.attach(sys.argv[2], keeper=keeper, module=net, awake=False)
x, address = torch.ones(5 * (1 << 20) // 8), net.weight.data_ptr()
say("ready")
while sys.stdin.readline():
    with model:
        say(*net(x).tolist(), net.weight.data_ptr() == address)
"""
    children = [(start_child(program, name), nets[name]) for name in ("/a", "/b") for _ in range(2)]
    assert [child.read() for child, _ in children] == ["ready"] * 4
    for child, net in children + children[::-1]:
        child.tell()
        *told, same_address = child.read().split()
        assert torch.allclose(torch.tensor([float(word) for word in told]), net(x)) and same_address == "True"
    a = gvmem.torch.attach("/a", keeper=keeper)
    assert a.resident_bytes == a.size
    for child, _ in children:
        assert child.end() == (0, "")


def test_device_is_a_number_or_as_torch_writes_it(keeper, publish):
    for device, wanted in ((1, 1), ("cuda:1", 1), (torch.device("cuda", 1), 1), ("cuda", 0), (None, 0)):
        publish({"x": torch.ones(3)}, device=device, replace=True)
        model = gvmem.torch.attach("/model", keeper=keeper)
        assert model.device == wanted and model["x"].sum() == 3
        model.close()
    for device in ("cpu", torch.device("meta")):
        with pytest.raises(ValueError, match="cannot be on"):
            gvmem.torch.publish({"x": torch.ones(3)}, "/never", keeper=keeper, device=device)


def test_sleep_by_stream_number_and_close(keeper, publish):
    publish({"x": torch.ones(3)})
    model = gvmem.torch.attach("/model", keeper=keeper)
    kept = model["x"]
    model.sleep(stream=0)
    with pytest.raises(ValueError, match="sleeps"):
        model["x"]
    with model.use(stream=0):
        assert model["x"] is kept and kept.sum() == 3
    model.close()
    assert keeper.objects()[0].openings == 1  # kept has its address still
    del kept
    gc.collect()
    assert keeper.objects()[0].openings == 0


@pytest.mark.parametrize("value, why", [
    (1, "of int"), (torch.ones(3).to_sparse(), "sparse"), (torch.ones(3, device="meta"), "meta"),
    (torch.quantize_per_tensor(torch.ones(3), .1, 0, torch.qint8), "quantized"),
])
def test_what_is_no_plain_tensor_is_refused_by_name(keeper, value, why):
    with pytest.raises(TypeError, match=f'"bad" is .*{why}'):
        gvmem.torch.publish({"bad": value}, "/never", keeper=keeper)


def test_file_of_safetensors_becomes_a_module(keeper, publish, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch", reason="the package safetensors is missing")
    given = {str(dtype): torch.randint(0, 2, (3, 5)).to(dtype) for dtype in dtypes() if dtype != torch.complex128}
    safetensors.save_file(given, tmp_path / "a")
    gvmem.models.publish_files(tmp_path / "a", "/model", keeper=keeper)
    model = gvmem.torch.attach("/model", keeper=keeper)
    assert set(model) == set(given) and all(same(model[key], wanted) for key, wanted in given.items())
    publish(given, replace=True)


def test_arrays_of_a_lease_become_tensors(keeper):
    """PyTorch takes read-only arrays of DLPack, or says that it does not."""
    with keeper.create("/array", 2 * MIB) as obj:
        with obj.write("bfloat16", (4, -1)) as a:
            tensor = torch.from_dlpack(a)
            tensor.fill_(2)
            del tensor
        with obj.read("bfloat16") as a:
            try:
                assert torch.from_dlpack(a).sum(dtype=torch.float64) == 2 * MIB
            except BufferError as error:
                assert "read-only" in str(error)


def test_saver_has_its_pool_on_its_gpu(keeper, monkeypatch):
    """With stand-ins of PyTorch's calls: what they do takes GPUs (tests/gpu/python_models.py)."""
    current, used = [0], []

    @contextlib.contextmanager
    def device(number):
        before, current[0] = current[0], number
        yield
        current[0] = before

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch.cuda, "MemPool", lambda allocator: ("pool", current[0]), raising=False)
    monkeypatch.setattr(torch.cuda, "use_mem_pool", lambda pool, device: used.append((pool, device)) or contextlib.nullcontext(), raising=False)
    monkeypatch.setattr(torch.cuda.memory, "get_allocator_backend", lambda: "native")
    monkeypatch.setattr(torch.cuda.memory, "CUDAPluggableAllocator", lambda *_: types.SimpleNamespace(allocator=lambda: None))
    with gvmem.torch.Saver(keeper, device=1) as saver, saver.region("far"):
        pass
    assert used == [(("pool", 1), 1)] and current == [0]
