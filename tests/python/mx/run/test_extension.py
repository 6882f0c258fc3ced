"""The extension library loads, and refuses to in all cases in which it must."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import mxnet as mx
import pytest
from mxnet.libinfo import find_lib_path

from tofu.errors import GraphError, TofuError
from tofu.mx import extension
from tofu.mx.extension import UnsupportedMXNetError
from tofu.mx.nnvm import Entry, Graph, Node


def backward_dense(name):
    inputs = [Entry(Node("null", each)) for each in ("head", "data", "weight")]
    node = Node(
        "_backward_FullyConnected",
        name,
        {"num_hidden": "4", "no_bias": "True"},
        inputs,
        num_outputs=2,
    )
    return Graph([Entry(node, 0), Entry(node, 1)]).to_symbol()


def infer(symbol):
    return symbol.infer_shape_partial(data=(2, 3), weight=(4, 3), head=(2, 4))[1]


def test_taught_shapes_hold_only_inside_the_context():
    symbol = backward_dense("dense")
    with extension.taught({"dense": [((2, 3), 0), ((4, 3), 0)]}):
        assert infer(symbol) == [(2, 3), (4, 3)]
    assert infer(symbol) == [(), ()]


def test_a_node_that_was_not_taught_stays_unknown():
    with extension.taught({"another": [((2, 3), 0), ((4, 3), 0)]}):
        assert infer(backward_dense("dense")) == [(), ()]


def test_teaching_ends_after_an_error():
    def fail():
        with extension.taught({"dense": [((2, 3), 0), ((4, 3), 0)]}):
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert infer(backward_dense("dense")) == [(), ()]


def test_loading_prints_nothing():
    """MXNet would list the operators of a library on standard error."""
    loads = "from tofu.mx import extension; extension.load()"
    ran = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("", "")


def test_the_environment_is_afterwards_as_it_was(monkeypatch):
    monkeypatch.setenv("TOFU_TEST_SET", "before")
    monkeypatch.delenv("TOFU_TEST_UNSET", raising=False)

    def fail():
        with extension.environment({"TOFU_TEST_SET": "1", "TOFU_TEST_UNSET": "2"}):
            assert (os.environ["TOFU_TEST_SET"], os.environ["TOFU_TEST_UNSET"]) == ("1", "2")
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert os.environ["TOFU_TEST_SET"] == "before"
    assert "TOFU_TEST_UNSET" not in os.environ


def test_another_version_is_refused():
    with pytest.raises(UnsupportedMXNetError, match=r"MXNet 1\.9\.0 .* needs exactly 1\.9\.1"):
        extension.check_version("1.9.0")


@pytest.fixture
def unloaded(monkeypatch):
    monkeypatch.setattr(extension, "_library", None)


def test_another_version_is_refused_by_load(monkeypatch, unloaded):
    monkeypatch.setattr(mx, "__version__", "2.0.0")
    with pytest.raises(UnsupportedMXNetError, match=r"MXNet 2\.0\.0 is installed"):
        extension.load()


def test_a_failed_self_test_is_refused(monkeypatch, unloaded):
    path = os.environ.get("TOFU_MXNET_LIBRARY")

    def fail():
        raise UnsupportedMXNetError("the self-test of shape teaching found nothing")

    monkeypatch.setattr(extension, "self_test", fail)
    with pytest.raises(UnsupportedMXNetError, match="self-test"):
        extension.load(Path(path) if path else None)
    with pytest.raises(TofuError, match="has not been called"), extension.taught({}):
        pass


def test_a_file_that_is_no_library_is_refused(tmp_path, unloaded):
    file = tmp_path / "libtofu_mxnet.so"
    file.write_text("no library")
    with pytest.raises(UnsupportedMXNetError, match=r"MXNet cannot load .*libtofu_mxnet\.so"):
        extension.load(file)


def test_a_library_that_is_not_mxnet_cannot_be_taught():
    code = (
        "import ctypes, sys; library = ctypes.CDLL(sys.argv[1]);"
        "library.TofuTeachOpen.restype = ctypes.c_char_p;"
        "print(library.TofuTeachOpen(sys.argv[2].encode()).decode(), library.TofuTeachBegin())"
    )

    def answer(path):
        done = subprocess.run(
            [sys.executable, "-c", code, extension._library._name, path],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    assert "no library is loaded from /nowhere.so 0" in answer("/nowhere.so")
    assert "does not export the functions of MXNet 1.9.1 0" in answer("libc.so.6")


def in_another_process(libmxnet, answer):
    """The value of `answer`, an expression of `library` and `path`, in another process."""
    code = (
        "import ctypes, sys; library = ctypes.CDLL(sys.argv[1]); path = sys.argv[2].encode();"
        "library.TofuFreeOpen.restype = library.TofuPlaceOpen.restype = ctypes.c_char_p;"
        f"print({answer})"
    )
    command = [sys.executable, "-c", code, extension._library._name, libmxnet]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def free_in_another_process(libmxnet):
    return in_another_process(
        libmxnet, "library.TofuFreeOpen(path).decode(), library.TofuFreeBegin()"
    )


def test_operators_of_another_library_are_not_freed():
    assert "no library is loaded from /nowhere.so 0" in free_in_another_process("/nowhere.so")
    assert "does not export the functions of MXNet" in free_in_another_process("libc.so.6")


def place_in_another_process(libmxnet):
    return in_another_process(libmxnet, "library.TofuPlaceOpen(path).decode()")


def test_graphs_of_another_library_are_not_placed():
    assert "no library is loaded from /nowhere.so" in place_in_another_process("/nowhere.so")
    assert "does not export the functions of MXNet" in place_in_another_process("libc.so.6")


def test_graphs_are_placed_here():
    assert extension.places_nodes() and extension.views_arrays()
    # A second call, as after a failed load, finds its own function.
    assert extension._library.TofuPlaceOpen(os.fsencode(find_lib_path()[0])) is None
    with extension.placed([("x", 0)]) as is_placed:
        assert not is_placed()
    assert not is_placed(), "no graph was bound"


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([("x", 0), ("y", 1)], True),
        ([("x", 1), ("y", 1)], False),  # x is an array of the first context
        ([("x", 0)], False),
    ],
)
def test_a_graph_is_placed_if_every_array_stays_where_it_is(devices, expected):
    groups = {"a": mx.cpu(0), "b": mx.cpu(1)}
    with mx.AttrScope(ctx_group="a"):
        x = mx.sym.var("x")
    with mx.AttrScope(ctx_group="b"):
        y = mx.sym.relu(x, name="y")
    with extension.placed(devices) as is_placed:
        bound = y.bind(mx.cpu(1), {"x": mx.nd.ones((3,), groups["a"])}, group2ctx=groups)
    assert is_placed() is expected
    assert ("_CrossDeviceCopy" in bound.debug_str()) is not expected


def test_operators_hold_no_resource_of_mxnet():
    # A second call, as after a failed load, finds them freed already.
    assert extension.free_operators(extension._library, find_lib_path()[0]) is None


def fake_library(opened=None, freed=3):
    calls = []

    def answering(name, answer):
        return lambda *_: calls.append(name) or answer

    return SimpleNamespace(
        calls=calls,
        TofuFreeOpen=answering("open", opened),
        TofuFreeBegin=answering("begin", freed),
        TofuFreeEnd=answering("end", None),
    )


def test_operators_that_cannot_be_freed_stay_as_they_are():
    library = fake_library(opened=b"the operator maps have another layout")
    reason = extension.free_operators(library, "libmxnet.so")
    assert reason == "the operator maps have another layout"
    assert library.calls == ["open"]


def test_operators_are_not_freed_where_their_resources_lie_elsewhere():
    library = fake_library(freed=0)
    assert "in another place than expected" in extension.free_operators(library, "libmxnet.so")
    assert library.calls == ["open", "begin", "end"]


@pytest.mark.parametrize("failing", [0, 1])
def test_a_fetch_that_fails_gives_the_resources_back(monkeypatch, failing):
    problems = ["a fetch gave 1" if i == failing else None for i in (0, 1)]
    monkeypatch.setattr(extension, "_fetch_problem", lambda: problems.pop(0))
    library = fake_library()
    assert "gave 1" in extension.free_operators(library, "libmxnet.so")
    assert library.calls == ["open", *["begin"] * failing, "end"]


def test_compiled_kernels_are_kept_among_the_users_caches(monkeypatch, tmp_path):
    told = []
    library = SimpleNamespace(TofuKeepKernels=told.append)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    extension.keep_kernels(library)
    assert told == [os.fsencode(tmp_path / "tofu" / "kernels")]
    monkeypatch.delenv("XDG_CACHE_HOME")

    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    extension.keep_kernels(library)
    assert len(told) == 1


def test_stateful_backward_operators_are_known():
    assert extension.is_stateful_backward("_backward_RNN")
    assert not extension.is_stateful_backward("_backward_FullyConnected")


def test_mxnets_own_zeros_is_untouched():
    assert mx.nd.zeros((2, 3)).shape == (2, 3)
    assert "tofu" not in (mx.nd.op.zeros_like.__doc__ or "")


def test_errors_of_mxnet_say_what_tofu_was_doing():
    expected = pytest.raises(GraphError, match="trying something: MXNet refused")
    with expected, extension.mxnet_errors("trying something"):
        mx.base.check_call(mx.base._LIB.MXLoadLib(ctypes.c_char_p(b"/nowhere.so"), 0))
