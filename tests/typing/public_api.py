"""A script that uses the public API, for ``mypy --strict``: each ignored error must be one."""

import tofu

plan = tofu.plan("mlp", workers=4, memory="12GiB", pins={"*_weight": 1})
communicated: int = plan.bytes
held: int = plan.memory["parameters"]
explanation: str = plan.explain("mlp_dense0_weight")
layer: str = plan.layers[0].name
cuts: tuple[int, ...] = plan.tensor("mlp_dense0_weight").cuts
plan.save("mlp.plan")
tofu.plan("mlp", workers="four")  # type: ignore[arg-type]
tofu.plan("mlp", nosuch=1)  # type: ignore[call-arg]

tofu.enable(workers=2, device="cpu", strict=True)
tofu.enable(nosuch=1)  # type: ignore[call-arg]
tofu.disable()
