"""benchmarks/tile_multiples.py runs, and times every layer. Timings are not checked."""


def test_smoke(run_script):
    rows = [
        line.split() for line in run_script("benchmarks/tile_multiples.py", "--smoke").splitlines()
    ]
    assert len(rows) == 17 and {row[0] for row in rows} == {"convolution", "dense"}
    assert all(float(row[-2]) > 0 and row[-1] == "ms" for row in rows)
