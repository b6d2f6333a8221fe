"""quatt's C interface through ctypes, for measurements and GPU checks from Python. Mirrors include/quatt/quatt.h."""

import ctypes as c
import os

I32, I64, F32, PTR, SIZE = c.c_int32, c.c_int64, c.c_float, c.c_void_p, c.c_size_t
NONE, F32_T, BF16_T, F16_T, E4M3_T, I32_T = range(6)


class Tensor(c.Structure):
    _fields_ = [("data", PTR), ("dtype", I32), ("rank", I32), ("extent", I64 * 4), ("stride", I64 * 4)]


class OperandRecipe(c.Structure):
    _fields_ = [(n, I32) for n in ("format", "scale_format", "group_tokens", "group_channels", "key_groups", "center",
                                   "normalize", "block_tokens")] + [("amax_target", F32)]


class Recipe(c.Structure):
    _fields_ = [("struct_size", SIZE), ("name", c.c_char * 24)] + [(n, OperandRecipe) for n in "qkv"] + [
        (n, I32) for n in ("p_format", "overflow_format", "exponent_bias", "overflow_code", "promotion_interval", "refresh_rise",
                           "max_drop", "refreshes", "accumulator", "promotes", "q_mean_term")
    ] + [("expected_rel_l2", F32), ("expected_lse_error", F32)]


class Tensors(c.Structure):
    _fields_ = [("struct_size", SIZE)] + [
        (n, Tensor) for n in ("q", "k", "v", "out", "lse", "cu_seqlens_q", "cu_seqlens_k", "kv_lens", "q_descale",
                              "k_descale", "v_descale", "sink", "block_table", "status_word", "light_mass")
    ] + [("cu_seqlens_q_host", PTR), ("cu_seqlens_k_host", PTR), ("counters", PTR)]


class Problem(c.Structure):
    _fields_ = [("struct_size", SIZE), ("recipe", Recipe), ("tensors", Tensors), ("softmax_scale", F32),
                ("causal", I32), ("window_left", I64), ("window_right", I64), ("key_tile", I32), ("splits", I32),
                ("zero_tail", I32), ("threads", I32), ("rows", PTR), ("row_count", I64), ("policy", PTR),
                ("policy_count", I32), ("allow_fallback", I32), ("strict", I32), ("kernel", c.c_char_p), ("log", PTR),
                ("log_user", PTR), ("parallel_for", PTR), ("parallel_for_user", PTR),
                ("workspace_target_bytes", I64)]


class Device(c.Structure):
    _fields_ = [("struct_size", SIZE)] + [(n, I32) for n in ("backend", "ordinal", "compute_major", "compute_minor",
                                                              "sm_count")]


class PlanInfo(c.Structure):
    _fields_ = [("struct_size", SIZE), ("kernel", c.c_char * 32), ("device", c.c_char * 32), ("workspace_bytes", SIZE),
                ("workspace_align", SIZE), ("key_tile", I32), ("splits", I32), ("threads", I32), ("fallback", I32),
                ("packed_bytes", SIZE)]


class Quatt:
    def __init__(self, path):
        self.lib = c.CDLL(os.path.abspath(path))
        self.lib.quatt_last_error.restype = c.c_char_p
        self.lib.quatt_version.restype = c.c_char_p
        self.lib.quatt_plan_create.argtypes = [PTR, PTR, PTR]
        self.lib.quatt_run.argtypes = [PTR, PTR, PTR, SIZE, PTR]
        self.lib.quatt_quantize.argtypes = self.lib.quatt_attend.argtypes = [PTR, PTR, PTR, SIZE, PTR, SIZE, PTR]
        self.lib.quatt_plan_destroy.argtypes = [PTR]
        # An empty problem is refused in any case; not by its size where this file describes the library's structs.
        _, message, _ = self.query(self.empty_problem(), "cpu")
        if "struct_size" in message:
            raise RuntimeError(message)

    def version(self):
        return self.lib.quatt_version().decode()

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.quatt_last_error().decode())

    def device(self, name):
        d = Device()
        self.check(self.lib.quatt_device_init_sized(c.byref(d), SIZE(c.sizeof(d)), name.encode()))
        return d

    @staticmethod
    def tensor(t):
        """A torch tensor as a view; None as absent."""
        view = Tensor()
        if t is not None:
            import torch
            dtypes = {torch.float32: F32_T, torch.bfloat16: BF16_T, torch.float16: F16_T, torch.int32: I32_T,
                      torch.float8_e4m3fn: E4M3_T}
            view.data, view.dtype, view.rank = t.data_ptr(), dtypes[t.dtype], t.dim()
            for i in range(t.dim()):
                view.extent[i], view.stride[i] = t.shape[i], t.stride(i)
        return view

    def empty_problem(self):
        p = Problem()
        self.lib.quatt_problem_init_sized(c.byref(p), *(SIZE(c.sizeof(x)) for x in (Problem, Recipe, Tensors)))
        return p

    def problem(self, recipe, q, k, v, out, **options):
        p = self.empty_problem()
        self.check(self.lib.quatt_recipe_init_sized(c.byref(p.recipe), SIZE(c.sizeof(Recipe)), recipe.encode()))
        p.softmax_scale = options.pop("softmax_scale", q.shape[-1] ** -0.5)
        for name, t in dict(q=q, k=k, v=v, out=out).items():
            setattr(p.tensors, name, self.tensor(t))
        for name in ("lse", "cu_seqlens_q", "cu_seqlens_k", "kv_lens", "sink", "status_word"):
            setattr(p.tensors, name, self.tensor(options.pop(name, None)))
        for name, value in options.items():
            setattr(p, name, value)
        return p

    def plan(self, problem, device):
        return Plan(self, problem, self.device(device))

    def query(self, problem, device):
        """(status, message, PlanInfo): what the device says about a problem, without a plan."""
        info = PlanInfo(struct_size=c.sizeof(PlanInfo))
        d = self.device(device)
        status = self.lib.quatt_query(c.byref(problem), c.byref(d), c.byref(info))
        return status, "" if status == 0 else self.lib.quatt_last_error().decode(), info


class Plan:
    def __init__(self, quatt, problem, device):
        self.quatt, self.handle, self.info = quatt, PTR(), PlanInfo(struct_size=c.sizeof(PlanInfo))
        quatt.check(quatt.lib.quatt_plan_create(c.byref(problem), c.byref(device), c.byref(self.handle)))
        quatt.check(quatt.lib.quatt_plan_get_info(self.handle, c.byref(self.info)))

    @property
    def workspace_bytes(self):
        return self.info.workspace_bytes

    def run(self, tensors, workspace_pointer, stream=None):
        self.quatt.check(self.quatt.lib.quatt_run(self.handle, c.byref(tensors), workspace_pointer,
                                                  self.workspace_bytes, stream))

    @property
    def packed_bytes(self):
        return self.info.packed_bytes

    def quantize(self, tensors, packed_pointer, workspace_pointer, stream=None):
        self.quatt.check(self.quatt.lib.quatt_quantize(self.handle, c.byref(tensors), packed_pointer, self.packed_bytes,
                                                       workspace_pointer, self.workspace_bytes, stream))

    def attend(self, tensors, packed_pointer, workspace_pointer, stream=None):
        self.quatt.check(self.quatt.lib.quatt_attend(self.handle, c.byref(tensors), packed_pointer, self.packed_bytes,
                                                     workspace_pointer, self.workspace_bytes, stream))

    def __del__(self):
        if self.handle:
            self.quatt.lib.quatt_plan_destroy(self.handle)
