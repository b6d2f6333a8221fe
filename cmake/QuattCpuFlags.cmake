# Flags of the instruction-set levels of src/cpu, and what every file of a level is compiled with. Optimised in every build
# type: nothing may be left for the linker to share with code that has to run on any processor.
set(quatt_avx2 -mavx2 -mfma -mf16c)
set(quatt_avx512 ${quatt_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl)
set(quatt_avx512_vnni ${quatt_avx512} -mavx512vnni)
set(quatt_avx512_bf16 ${quatt_avx512_vnni} -mavx512bf16)
set(quatt_avx512_fp16 ${quatt_avx512_vnni} -mavx512fp16)
set(quatt_amx_instructions -mamx-tile -mamx-int8 -mamx-bf16)
set(quatt_amx ${quatt_avx512_bf16} ${quatt_amx_instructions})
set(quatt_level_flags -O3)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 takes the undefined vectors of its own AVX-512 header for a fault of ours (GCC bug 105593).
    list(APPEND quatt_level_flags -Wno-uninitialized -Wno-maybe-uninitialized)
endif()
