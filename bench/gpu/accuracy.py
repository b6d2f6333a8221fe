"""Errors of quatt fp8 and of FA3 FP8 on the same tensors, against fp64."""

import torch

from .common import exact_rows, rel_l2
from .peer_tables import DIM, OURS
from .peers import Fa3Bf16, Fa3Fp8, attention
from .problems import SINKS, V_MEANS, mean_errors, mean_problem, sink_problem

CENTRED = "FA3 FP8, V centred"  # its mean taken out in fp32 beforehand and added to the output


class Accuracy:
    def __init__(self, bench):
        self.bench, self.c = bench, bench.c

    def outputs(self, where, q, k, v):
        """{candidate: out} of q [Sq,H,D] and k, v [Sk,H,D]."""
        outputs, one = {}, [0, q.shape[0]]
        with self.bench.or_left_out(OURS, where):
            outputs[OURS] = attention(self.c, q, k, v, one).run().float()
        for kind in (Fa3Fp8, Fa3Bf16):
            if self.bench.peer(kind):
                with self.bench.or_left_out(kind.name, where):
                    outputs[kind.name] = kind.make(q, k, v, one)().float()
        if self.bench.peer(Fa3Fp8):
            with self.bench.or_left_out(CENTRED, where):
                mean = v.float().mean(0)
                outputs[CENTRED] = Fa3Fp8.make(q, k, v.float() - mean, one)().float() + mean
        self.c.synchronize()
        return outputs

    def exact(self, q, k, v):
        return exact_rows(q, k, v, torch.arange(q.shape[0], device=q.device), DIM**-0.5)[0]

    def lengths(self):
        rows = []
        for keys in self.c.size([1024 * 2**i for i in range(6 if self.c.quick else 9)], [200]):
            q, k, v = (
                self.c.normal(n, 4, DIM, seed=i) for i, n in enumerate((self.c.size(256, 20), keys, keys))
            )
            exact = self.exact(q, k, v)
            outputs = self.outputs(f"accuracy, {keys} keys", q, k, v)
            rows.append(
                {
                    "case": f"{keys} keys",
                    "keys": keys,
                    "errors": {n: rel_l2(x, exact) for n, x in outputs.items()},
                }
            )
            self.c.free()
        return {"title": "rel-L2 on N(0,1), 256 queries, 4 heads", "digits": ".4f", "rows": rows}

    def sinks(self):
        rows = []
        for keys in self.c.size((8192, 32768) if self.c.quick else (8192, 32768, 131072), (400,)):
            q, k, v = sink_problem(self.c, keys)
            exact = self.exact(q, k, v)
            outputs = self.outputs(f"sinks, {keys} keys", q, k, v)
            for h, (weight, position) in enumerate(SINKS):
                rows.append(
                    {
                        "case": f"{keys} keys, weight {weight} at {position}",
                        "keys": keys,
                        "weight": weight,
                        "position": position,
                        "errors": {n: rel_l2(x[:, h], exact[:, h]) for n, x in outputs.items()},
                    }
                )
            self.c.free()
        title = "rel-L2 where one key has this weight and V = 0 at this part of the row"
        return {"title": title, "digits": ".4f", "rows": rows}

    def means(self):
        rows = []
        for keys in self.c.size((2048, 8192, 32768) if self.c.quick else (2048, 8192, 32768, 131072), (600,)):
            q, k, v = mean_problem(self.c, keys)
            exact = self.exact(q, k, v)
            errors = {
                n: mean_errors(x, exact) for n, x in self.outputs(f"means, {keys} keys", q, k, v).items()
            }
            for i, mean in enumerate(V_MEANS):
                rows.append(
                    {
                        "case": f"{keys} keys, mean {mean}",
                        "keys": keys,
                        "mean": mean,
                        "errors": {n: x[i] for n, x in errors.items()},
                    }
                )
            self.c.free()
        title = (
            "mean(out) / mean(exact) - 1 where V has this mean (0: the difference, in std of the output)"
        )
        return {"title": title, "digits": "+.1e", "rows": rows}

    def needle(self):
        """One key answers: it has nearly all of the weight, and its V is the result."""
        keys, positions, weight = self.c.size(131072, 400), (0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1), 0.999
        q, k, v = (
            self.c.normal(n, len(positions), DIM, seed=i, dtype=torch.float32)
            for i, n in enumerate((32, keys, keys))
        )
        q[..., 0], k[..., 0] = DIM**0.5, 0
        for h, position in enumerate(positions):
            at = round(position * (keys - 1))
            k[at, h] = 0
            # The mean of exp of the other scores, of N(0, 1), is exp(1 / 2).
            k[at, h, 0] = torch.tensor(weight / (1 - weight) * (keys - 1)).log().item() + 0.5
        q, k, v = (x.bfloat16() for x in (q, k, v))
        exact = self.exact(q, k, v)
        outputs = self.outputs("needle", q, k, v)
        rows = [
            {
                "case": f"at {position}",
                "position": position,
                "errors": {n: rel_l2(x[:, h], exact[:, h]) for n, x in outputs.items()},
            }
            for h, position in enumerate(positions)
        ]
        title = f"rel-L2 where one of {keys} keys has {weight} of the weight, by its place in the row"
        return {"title": title, "digits": ".4f", "rows": rows}

    def tables(self):
        tables = {}
        for name in ("lengths", "sinks", "means", "needle"):
            with self.bench.or_left_out("all", f"accuracy, {name}"):
                tables[name] = getattr(self, name)()
            self.c.free()
        return tables
