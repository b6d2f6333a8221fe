"""Problems in which a kernel shows what it loses: heavy keys, and V with a mean."""

import torch

SINKS = [(weight, position) for weight in (0.5, 0.9, 0.97) for position in (0, 0.3, 0.5, 1)]


def heavy_keys(c, keys, heads):
    """q, k, v, a head for each (weight, position, mean, share): a key with that weight, at that part of the row,
    whose V is `share` of what the others have without their mean."""
    q = c.normal(32, len(heads), 128, seed=1, dtype=torch.float32)
    k = c.normal(keys, len(heads), 128, seed=2, dtype=torch.float32) * 0.5
    v = c.normal(keys, len(heads), 128, seed=3, dtype=torch.float32)
    q[..., 0], k[..., 0] = 128**0.5, 0
    for h, (weight, position, mean, share) in enumerate(heads):
        at = round(position * (keys - 1))
        odds = torch.tensor(weight / (1 - weight) * (keys - 1)).log().item()
        k[at, h] = 0
        k[at, h, 0] = odds + 0.125  # log of the mean of exp of N(0, .5) is .5^2 / 2
        own = share * v[at, h]
        v[:, h] += mean
        v[at, h] = own
    return [x.bfloat16() for x in (q, k, v)]


def sink_problem(c, keys):
    """A head for each of SINKS: a key with that weight and V = 0, at that part of the row."""
    return heavy_keys(c, keys, [(weight, position, 0, 0) for weight, position in SINKS])


# (weight, position, mean of V, share): what a centre taken off all tokens ruins.
SINKS_BESIDE_MEANS = [(0.9, at, mean, share) for at in (0, 0.6, 1) for mean in (0.3, 1, 3) for share in (0, 0.1)]


V_MEANS, MEAN_HEADS = (0, 0.5, 1, 2), 4  # heads a mean


def mean_problem(c, keys):
    """q, k, v with MEAN_HEADS heads for each mean of V in V_MEANS."""
    q, k, v = (
        c.normal(n, MEAN_HEADS * len(V_MEANS), 128, seed=i, dtype=torch.float32)
        for i, n in enumerate((32, keys, keys))
    )
    for i, mean in enumerate(V_MEANS):
        v[:, MEAN_HEADS * i : MEAN_HEADS * (i + 1)] += mean
    return [x.bfloat16() for x in (q, k, v)]


def mean_errors(out, exact):
    """mean(out) / mean(exact) - 1 for each of V_MEANS; of mean 0 the difference, in std of the output."""
    errors = []
    for i, mean in enumerate(V_MEANS):
        got, want = (x[:, MEAN_HEADS * i : MEAN_HEADS * (i + 1)].double() for x in (out, exact))
        error = got.mean() / want.mean() - 1 if mean else (got - want).mean() / want.std()
        errors.append(error.item())
    return errors
