"""Products by oneDNN are the products, as exact as MKL's, and stand where they pay."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import cavia
from cavia.compiler import onednn
from cavia.compiler.compiling import compile_graph
from cavia.compiler.products import CheapProducts
from cavia.training.step import MetaStep

aten = torch.ops.aten


@pytest.fixture
def faster(monkeypatch):
    """As on a processor for which oneDNN is faster; it computes the same on all that it runs on."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("PyTorch is built without oneDNN")
    monkeypatch.setattr(onednn, "is_faster", lambda: True)


def targets(function, *inputs):
    graph = make_fx(function, tracing_mode="fake")(*inputs).graph
    CheapProducts()(graph)
    moving = (aten.permute.default, aten.clone.default)
    return [node.target for node in graph.nodes if node.op == "call_function" and node.target not in moving]


def matrices(n, k, m, lying="", kind=torch.float32):
    """a [n, k] and b [k, m]; of those that are lying, the columns are whole in memory and not the rows."""
    torch.manual_seed(0)
    a, b = torch.randn(n, k, dtype=kind), torch.randn(k, m, dtype=kind)
    return tuple(x.t().contiguous().t() if name in lying else x for name, x in (("a", a), ("b", b)))


@pytest.mark.usefixtures("faster")
@pytest.mark.parametrize(
    ("shape", "lying", "expected"),
    [
        ((1000, 128, 96), "", onednn.product),
        ((1000, 128, 96), "b", onednn.product),
        ((1000, 128, 96), "a", aten.mm.default),
        ((128, 5000, 96), "a", onednn.weight_gradient),
        ((128, 5000, 96), "", aten.mm.default),
        ((128, 4999, 96), "a", aten.mm.default),  # rows that cannot be cut into images
        ((512, 512, 512), "", aten.mm.default),
        ((100, 16, 16), "", aten.mm.default),
        ((100_000, 128, 3), "", aten.mm.default),
    ],
)
def test_which_products_are_taken_over(shape, lying, expected):
    assert targets(torch.mm, *matrices(*shape, lying)) == [expected]


@pytest.mark.slow
@pytest.mark.usefixtures("faster")
def test_a_layer_that_is_used_again_is_copied_once():
    a, b = matrices(1000, 128, 128)
    graph = compile_graph(lambda a, b: (a @ b @ b,), [a, b])
    assert graph.source_code.count("aoti_torch_cpu__linear_pointwise(") == 2
    assert graph.source_code.count(" cpp_fused_0((") == 1
    torch.testing.assert_close(graph([a, b])[0], a @ b @ b, rtol=1e-4, atol=1e-2)


@pytest.mark.usefixtures("faster")
def test_other_types_and_processors_stay(monkeypatch):
    for kind in (torch.float64, torch.bfloat16):
        assert targets(torch.mm, *matrices(1000, 128, 96, kind=kind)) == [aten.mm.default]
    monkeypatch.setattr(onednn, "is_faster", lambda: False)
    assert targets(torch.mm, *matrices(1000, 128, 96)) == [aten.mm.default]


@pytest.mark.slow
@pytest.mark.usefixtures("faster")
@pytest.mark.parametrize(
    ("shape", "lying", "operator"),
    [
        ((1000, 128, 96), "", "cpu__linear_pointwise"),
        ((1000, 96, 128), "b", "cpu__linear_pointwise"),
        ((100, 5000, 96), "a", "cpu_convolution_backward"),
        ((96, 5120, 100), "a", "cpu_convolution_backward"),
    ],
)
def test_the_compiled_product_is_as_exact_as_mkls(shape, lying, operator):
    a, b = matrices(*shape, lying)
    exact = a.double() @ b.double()
    graph = compile_graph(lambda a, b: (torch.relu(a) @ b, a @ b), [a, b])
    assert graph.source_code.count(f"aoti_torch_{operator}(") == 2
    assert "mm_out" not in graph.source_code
    bent, actual = graph([a, b])
    error, usual = (actual - exact).norm(), (a @ b - exact).norm()
    assert error <= 2 * usual
    torch.testing.assert_close(bent, torch.relu(a) @ b, rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("faster")
def test_without_compiling_the_operators_are_the_same():
    a, b = matrices(1000, 128, 96)
    torch.testing.assert_close(onednn.product(a, b.t()), a @ b, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        onednn.weight_gradient(a, a[:, :96].contiguous(), 20), a.t() @ a[:, :96], rtol=1e-4, atol=1e-3
    )


@pytest.mark.slow
@pytest.mark.usefixtures("faster")
def test_a_compiled_step_of_a_wide_network_equals_the_eager_one():
    faces = cavia.Completion(cavia.synthetic_faces(train=20, val=1, test=1))
    batch = faces.sample(4, 500, 500, torch.Generator().manual_seed(0))

    def gradient(compiled):
        torch.manual_seed(0)
        learner = cavia.CAVIA(cavia.MLP(2, 3, hidden=(96, 96, 96), context=32), "mse", inner_steps=2)
        return MetaStep(learner, lr=1e-3, compiled=compiled)._gradient(batch)[0]

    torch.testing.assert_close(gradient(True), gradient(False), rtol=1e-3, atol=1e-6)


def test_only_amds_processors_with_wide_vectors_take_it(monkeypatch, tmp_path):
    for vendor, vectors, expected in (
        ("AuthenticAMD", "AVX512", True),
        ("AuthenticAMD", "AVX2", False),
        ("GenuineIntel", "AVX512", False),
    ):
        (tmp_path / "cpuinfo").write_text(f"vendor_id\t: {vendor}\n")
        monkeypatch.setattr(onednn, "PROCESSOR", tmp_path / "cpuinfo")
        monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda vectors=vectors: vectors)
        monkeypatch.setattr("torch.backends.mkldnn.is_available", lambda: True)
        assert onednn.is_faster.__wrapped__() == expected
    monkeypatch.setattr(onednn, "PROCESSOR", tmp_path / "missing")
    assert not onednn.is_faster.__wrapped__()
