"""The processes of bench-models.py, which gives them orders: lines of JSON on standard input, an answer to each on standard output.

usage: models_child.py KIND FRAMEWORK SOFTWARE, where KIND is keeper, copies, saver or own-saver, FRAMEWORK torch or numpy, and SOFTWARE 1 for a software GPU.
A process says that it is ready when it has a context, in which the kernel that is timed has run once.
"""
import hashlib
import json
import sys
import time

now = time.monotonic_ns  # of one clock for all processes
LINK_BYTES = 1 << 30


class Numpy:
    """On a software GPU."""

    def __init__(self, software):
        import numpy

        self.numpy, self.software = numpy, software
        self.version = f"NumPy {numpy.__version__}"

    def models(self):
        import gvmem

        return gvmem.models

    def make(self, seed, words):
        return self.numpy.random.default_rng(seed).integers(-(2**62), 2**62, words, dtype="i8")

    def consume(self, value):
        return self.numpy.asarray(value)

    def empty_cache(self):
        pass

    def first(self, tensor):
        """A kernel that reads of a tensor, and its end."""
        return int(tensor[:1024].sum())

    def capture(self, tensors):
        """What sums whole tensors. Later calls use what it was given here, and nothing else."""
        return lambda: [int(tensor.sum()) for tensor in tensors]

    def link(self, rounds):
        import gvmem

        data = bytes(32 << 20)
        with gvmem.Buffer(len(data)) as buffer:
            return {"in": [rate(lambda: buffer.copy_in(data), len(data)) for _ in range(rounds)],
                    "out": [rate(lambda: buffer.copy_out(into=bytearray(data)), len(data)) for _ in range(rounds)]}


class Torch:
    """On a GPU; on a software GPU as far as PyTorch goes there."""

    def __init__(self, software):
        import torch

        self.torch, self.software = torch, software
        self.device = "cpu" if software else "cuda"
        self.version = f"PyTorch {torch.__version__}"
        self.first(torch.zeros(1024, dtype=torch.int64, device=self.device))

    def models(self):
        import gvmem.torch

        return gvmem.torch

    def sync(self):
        if not self.software:
            self.torch.cuda.synchronize()

    def empty_cache(self):
        if not self.software:
            self.torch.cuda.empty_cache()

    def make(self, seed, words):
        generator = self.torch.Generator(self.device).manual_seed(seed)
        return self.torch.randint(-(2**62), 2**62, (words,), dtype=self.torch.int64, device=self.device, generator=generator)

    def consume(self, value):
        return value if isinstance(value, self.torch.Tensor) else self.torch.from_dlpack(value)

    def first(self, tensor):
        return int(tensor[:1024].sum())

    def capture(self, tensors):
        def work():
            return self.torch.stack([tensor.sum() for tensor in tensors])

        if self.software:
            return lambda: work().tolist()
        work()  # what is made once
        self.sync()
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, capture_error_mode="thread_local"):
            sums = work()

        def replay():
            graph.replay()
            return sums.tolist()

        return replay

    def pinned(self, words):
        return self.torch.empty(words, dtype=self.torch.int64, pin_memory=not self.software)

    def link(self, rounds):
        size = LINK_BYTES if not self.software else 32 << 20
        host, device = self.pinned(size // 8).zero_(), self.torch.zeros(size // 8, dtype=self.torch.int64, device=self.device)

        def copy(into, source):
            into.copy_(source, non_blocking=True)
            self.sync()

        copy(device, host)
        return {"in": [rate(lambda: copy(device, host), size) for _ in range(rounds)],
                "out": [rate(lambda: copy(host, device), size) for _ in range(rounds)]}


def rate(call, size):
    """Bytes a second."""
    start = now()
    call()
    return size / (now() - start) * 1e9


def digest_of(sums):
    return hashlib.sha1(repr([total % 2**64 for total in sums]).encode()).hexdigest()[:12]


def wait_until(at):
    time.sleep(max(0, at - now()) / 1e9)


class Common:
    """What a process can be told. tensors and sum_all: of each model, by number."""

    def __init__(self, work):
        self.work, self.tensors, self.sum_all = work, {}, {}

    def link(self, rounds):
        return self.work.link(rounds)

    def make(self, seed, sizes):
        """Tensors of so many bytes, one by one, by name."""
        for i, size in enumerate(sizes):
            yield f"layers.{i}.weight", self.work.make(seed * 1000 + i, size // 8)

    def check(self, number):
        """The digest of all that a model has, by what was captured."""
        return digest_of(self.sum_all[number]())

    def first(self, number):
        self.work.first(self.tensors[number][0])


class Keeper(Common):
    """A client of a keeper."""

    def __init__(self, work):
        super().__init__(work)
        import gvmem

        self.gvmem, self.models, self.keeper = gvmem, {}, None
        with gvmem.Buffer(2 << 20) as buffer:  # the library's part of the context, and what PyTorch imports for DLPack
            work.first(work.consume(buffer.array("i8")))

    def connect(self, path):
        self.keeper = self.gvmem.connect(path)

    def publish(self, name, seed, sizes):
        self.work.models().publish(dict(self.make(seed, sizes)), name, keeper=self.keeper)
        self.work.empty_cache()

    def attach(self, number, name):
        self.models[number] = self.work.models().attach(name, keeper=self.keeper, awake=False)

    def prepare(self, number, graph=True):
        """The tensors, and the graph that sums them. The model sleeps afterwards."""
        model = self.models[number]
        with model.use():
            self.tensors[number] = [self.work.consume(model[key]) for key in model]
            if graph:
                self.sum_all[number] = self.work.capture(self.tensors[number])
            sums = self.sum_all[number]() if graph else [int(tensor.sum()) for tensor in self.tensors[number]]
            return {"digest": digest_of(sums), "address": model.address, "bytes": model.size}

    def wake(self, number, at=0):
        """Times from `at` on: until the model is awake, and until a kernel has read it."""
        wait_until(at)
        start = at or now()
        self.models[number].wake(resident=True)
        awake = now()
        self.first(number)
        return {"wake": (awake - start) / 1e9, "first": (now() - start) / 1e9}

    def sleep(self, number):
        start = now()
        self.models[number].sleep()
        return (now() - start) / 1e9

    def restart(self, path, name, key):
        """From connecting to the end of a kernel on a tensor."""
        start = now()
        self.keeper = self.gvmem.connect(path)
        connected = now()
        model = self.work.models().attach(name, keeper=self.keeper)
        attached = now()
        self.work.first(self.work.consume(model[key]))
        end = now()
        self.models[0] = model
        return {"connect": (connected - start) / 1e9, "attach": (attached - start) / 1e9, "first": (end - start) / 1e9}

    def figures(self):
        snapshot = self.keeper.snapshot()
        return {"in": snapshot.devices[0].promoted_bytes, "host": snapshot.keeper.host_used_bytes, "device": snapshot.devices[0].resident_bytes}

    def serve(self, sequence, digests, warm):
        """Requests, one after the other. Returns, of those behind the first `warm`: seconds, whether all was on the device, bytes that came in."""
        seconds, hits, before = [], 0, 0
        for place, number in enumerate(sequence):
            model = self.models[number]
            if place == warm:
                before, hits = self.figures()["in"], 0
            hits += model.resident_bytes == model.size
            start = now()
            with model.use():
                self.first(number)
                seconds.append((now() - start) / 1e9)
                if digest_of([int(tensor.sum()) for tensor in self.tensors[number]]) != digests[number]:
                    raise ValueError(f"request {place} read other bytes than model {number} has")
        return {"seconds": seconds[warm:], "hits": hits, "in": self.figures()["in"] - before}


class Copies(Common):
    """Without a keeper: a model in pinned memory, which is copied in anew each time."""

    def __init__(self, work):
        super().__init__(work)
        self.host = []

    def pin(self, seed, sizes):
        """In one piece: PyTorch rounds each up to a power of two."""
        self.host = self.work.pinned(sum(sizes) // 8).split([size // 8 for size in sizes])
        for tensor, (_, made) in zip(self.host, self.make(seed, sizes)):
            tensor.copy_(made)

    def place(self):
        """Tensors on the device, and a graph of them."""
        self.tensors[0] = [self.work.torch.empty_like(tensor, device=self.work.device) for tensor in self.host]
        self.copy_in()
        self.sum_all[0] = self.work.capture(self.tensors[0])
        return digest_of(self.sum_all[0]())

    def copy_in(self):
        for tensor, host in zip(self.tensors[0], self.host):
            tensor.copy_(host, non_blocking=True)

    def copy_over(self, at):
        for tensor in self.tensors[0]:
            tensor.zero_()
        self.work.sync()
        wait_until(at)
        self.copy_in()
        self.first(0)
        return {"first": (now() - at) / 1e9}

    def copy_anew(self):
        """The other model's tensors go, and those of this one are allocated: other processes have the memory in between."""
        for tensor in self.tensors[0]:
            tensor.zero_()
        self.work.sync()
        start = now()
        del tensor
        self.leave()
        asleep = now()
        self.tensors[0] = [self.work.torch.empty_like(host, device=self.work.device) for host in self.host]
        self.copy_in()
        self.first(0)
        end = now()
        return {"sleep": (asleep - start) / 1e9, "first": (end - start) / 1e9, "digest": digest_of([int(tensor.sum()) for tensor in self.tensors[0]])}

    def leave(self):
        """Gives all device memory back."""
        self.sum_all.clear()
        self.tensors.clear()
        self.work.empty_cache()

    def is_expandable(self):
        return any(segment["is_expandable"] for segment in self.work.torch.cuda.memory_snapshot())


class Saver(Common):
    """torch_memory_saver, with a backup in pinned host memory."""

    def __init__(self, work):
        super().__init__(work)
        from torch_memory_saver import torch_memory_saver

        self.saver = torch_memory_saver
        self.saver.hook_mode = "torch"

    def publish(self, number, seed, sizes):
        with self.saver.region(tag=f"model{number}", enable_cpu_backup=True):
            self.tensors[number] = [tensor for _, tensor in self.make(seed, sizes)]
        self.sum_all[number] = self.work.capture(self.tensors[number])
        digest = self.check(number)
        self.saver.pause(f"model{number}")
        return digest

    def keep_backups(self, keep):
        self.saver.retain_cpu_backup = keep

    def wake(self, number):
        start = now()
        self.saver.resume(f"model{number}")
        awake = now()
        self.first(number)
        return {"wake": (awake - start) / 1e9, "first": (now() - start) / 1e9}

    def sleep(self, number):
        self.work.sync()
        start = now()
        self.saver.pause(f"model{number}")
        return (now() - start) / 1e9


class OwnSaver(Saver):
    """gvmem.torch.Saver, which is used alike."""

    def __init__(self, work):
        Common.__init__(self, work)
        self.saver = None

    def connect(self, path):
        self.saver = self.work.models().Saver(path)


def main():
    kind, framework, software = sys.argv[1:]
    answers = sys.stdout
    sys.stdout = sys.stderr  # what libraries print is no answer

    def say(**answer):
        print(json.dumps(answer), file=answers, flush=True)

    try:
        work = {"torch": Torch, "numpy": Numpy}[framework](software == "1")
        process = {"keeper": Keeper, "copies": Copies, "saver": Saver, "own-saver": OwnSaver}[kind](work)
    except Exception as error:  # whatever keeps it from starting is why it is left out
        say(error=f"{type(error).__name__}: {error}")
        return
    say(value=work.version)
    for line in sys.stdin:
        order, arguments = json.loads(line)
        try:
            say(value=getattr(process, order)(**arguments))
        except Exception as error:  # likewise
            say(error=f"{order}: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
