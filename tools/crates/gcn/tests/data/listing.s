// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Spellings of gfx942's assembly that random encodings seldom reach; read by toolchain.rs.
s_load_dword s20, s[8:9], s4
s_load_dword s20, s[8:9], 0x10
s_load_dword s20, s[8:9], s4 offset:0x10
s_load_dword s20, s[8:9], -4
buffer_load_dword v1, v[2:3], s[4:7], s1 idxen offen offset:16 sc0 nt sc1
buffer_load_dword v1, s[4:7], s1 offen lds
buffer_load_dword off, s[4:7], s1 lds
flat_load_dword v1, v[2:3] offset:16 sc0 nt sc1
global_load_dword v1, v2, s[2:3] offset:-16
scratch_load_dword v1, off, off offset:4
scratch_load_dword v1, v2, s3 offset:4
scratch_store_dword off, v1, s33 offset:8
v_add_f32_sdwa v0, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_1 src1_sel:WORD_1
v_add_f32_sdwa v0, -v1, |v2| clamp dst_sel:DWORD src0_sel:DWORD src1_sel:WORD_1
v_add_u32_sdwa v0, sext(v1), v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_0 src1_sel:DWORD
v_mov_b32_sdwa v0, v1 dst_sel:BYTE_2 dst_unused:UNUSED_SEXT src0_sel:BYTE_1
v_cmp_eq_u32_sdwa s[2:3], v1, v2 src0_sel:BYTE_0 src1_sel:DWORD
v_cmp_eq_u32_sdwa vcc, v1, v2 src0_sel:BYTE_0 src1_sel:DWORD
v_mov_b32_dpp v0, v1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v0, v1 row_shr:1 row_mask:0xa bank_mask:0xf bound_ctrl:0
v_mov_b32_dpp v0, v1 row_bcast:15 row_mask:0xa bank_mask:0xf
v_mov_b32_dpp v0, v1 row_bcast:31 row_mask:0xc bank_mask:0xf
v_mov_b32_dpp v0, v1 row_newbcast:3 row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v0, v1 wave_shl:1 row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v0, v1 row_mirror row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v0, v1 row_half_mirror row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v0, v1 row_ror:3 row_mask:0xf bank_mask:0xf
v_add_f32_dpp v0, -v1, |v2| row_shl:1 row_mask:0xf bank_mask:0xf
v_add_f32_e64 v0, -v1, |v2| clamp mul:2
v_fma_f32 v0, -|v1|, s2, 1.0 div:2
v_add_f16_e64 v0, v1, v2
v_fma_f16 v0, v1, v2, v3 op_sel:[1,0,1,1]
v_pk_fma_f16 v0, v1, v2, v3 op_sel:[1,0,1] op_sel_hi:[0,1,1] neg_lo:[1,0,0] neg_hi:[0,1,0] clamp
v_pk_add_f32 v[0:1], v[2:3], s[4:5] op_sel:[0,1] op_sel_hi:[1,0]
s_waitcnt vmcnt(3)
s_waitcnt lgkmcnt(0)
s_waitcnt vmcnt(0) lgkmcnt(2)
s_waitcnt 0xffff
s_sendmsg sendmsg(MSG_INTERRUPT)
s_sendmsg sendmsg(MSG_SAVEWAVE)
s_sendmsg sendmsg(MSG_STALL_WAVE_GEN)
s_sendmsg sendmsg(MSG_HALT_WAVES)
s_sendmsg sendmsg(MSG_ORDERED_PS_DONE)
s_sendmsg sendmsg(MSG_EARLY_PRIM_DEALLOC)
s_sendmsg sendmsg(MSG_GS_ALLOC_REQ)
s_sendmsg sendmsg(MSG_GET_DOORBELL)
s_sendmsg sendmsg(MSG_GS, GS_OP_EMIT_CUT, 1)
s_sendmsg sendmsg(MSG_GS_DONE, GS_OP_NOP)
s_sendmsg sendmsg(MSG_SYSMSG, SYSMSG_OP_TTRACE_PC)
s_sendmsg sendmsg(11, 0, 0)
s_getreg_b32 s0, hwreg(HW_REG_MODE)
s_getreg_b32 s0, hwreg(HW_REG_TRAPSTS, 8, 2)
s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 0x3
s_mov_b32 s0, 0.15915494
v_mov_b32 v0, 0.15915494
v_add_f16 v0, 0.15915494, v1
s_mov_b32 s0, 0xdeadbeef
s_mov_b64 s[0:1], vcc
s_mov_b64 exec, s[0:1]
s_mov_b32 m0, exec_lo
s_mov_b64 ttmp[0:1], s[0:1]
s_mov_b64 flat_scratch, xnack_mask
s_mov_b32 s0, src_vccz
s_mov_b32 s0, scc
s_mov_b32 s0, src_shared_limit
ds_read2_b32 v[0:1], v2 offset0:1 offset1:2
ds_swizzle_b32 v0, v1 offset:0xffff
ds_gws_init v0 offset:3 gds
global_load_dword a1, v[2:3], off
v_mfma_f32_32x32x1_2b_f32 a[0:31], v0, a1, a[0:31] cbsz:1 abid:2 blgp:3
v_mfma_f32_4x4x1_16b_f32 v[0:3], v0, a1, 1.0
v_accvgpr_write_b32 a0, v1
v_accvgpr_write_b32 a0, 1.0
v_mul_lo_u32 v0, v1, -1
s_set_gpr_idx_on s2, gpr_idx(SRC0)
s_branch 65535
s_cmpk_eq_u32 s0, 0xffff
s_movk_i32 s0, 0xffff
s_sleep 5
s_sethalt 1
s_barrier
s_nop 3
s_trap 2
v_div_scale_f32 v0, s[2:3], v1, v2, -v3
v_mad_u64_u32 v[0:1], s[2:3], v1, v2, v[4:5]
v_cvt_f32_f16_sdwa v0, v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1
v_cndmask_b32_dpp v0, v1, v2, vcc row_shl:1 row_mask:0xf bank_mask:0xf
v_cndmask_b32_sdwa v0, v1, v2, vcc dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
v_fma_mix_f32 v0, v1, -|v2|, v3 op_sel:[1,0,0] op_sel_hi:[1,0,1]
v_cmp_lt_f32_e64 s[0:1], -v1, |v2|
v_cmpx_lt_f32_e64 s[0:1], -v1, v2
v_cmp_class_f32_e64 s[0:1], -v1, v2
global_atomic_add v1, v[2:3], v4, off sc0
buffer_inv sc1
buffer_wbl2 sc0 sc1
s_call_b64 s[0:1], 4
v_readlane_b32 s0, v1, m0
v_readlane_b32 s0, v1, 3
v_pk_mov_b32 v[0:1], v[2:3], v[4:5] op_sel:[1,0]
v_pk_mov_b32 v[0:1], 0.15915494, 1.0
v_cvt_f16_f32_e64 v0, v1 clamp
v_pk_add_u16 v0, v1, 1.0
v_pk_add_f16 v0, v1, 1.0
v_pk_add_f16 v0, v1, 1.0 op_sel_hi:[1,0]
