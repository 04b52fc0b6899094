//! Statements in the shape the ISA gives them, one or more for every family: each must
//! parse, with the number of operands that stands before it.

use warpalloc_ptx::{Edits, Stmt, parse};

const STATEMENTS: &[(usize, &str)] = &[
    // Integer, floating point, half, comparison, logic.
    (3, "add.s32.sat c, a, b;"),
    (4, "mad.lo.cc.u32 r1, r2, r3, 0xffffffff;"),
    (4, "dp2a.lo.u32.s32 d, a, b, c;"),
    (2, "bfind.shiftamt.u32 d, a;"),
    (3, "szext.wrap.s32 d, a, 1 << 2;"),
    (4, "fma.rn.relu.bf16x2 f0, f1, f2, f3;"),
    (3, "min.NaN.xorsign.abs.f32 f0, f1, -2.5e-3;"),
    (2, "tanh.approx.bf16x2 h1, h0;"),
    (2, "testp.subnormal.f64 p, X;"),
    (4, "setp.lt.and.s32 p|q, a, b, !r;"),
    (3, "setp.gtu.bf16x2 p|q, f1, f2;"),
    (4, "set.leu.and.u32.f16x2 d, a, b, !c;"),
    (4, "slct.u32.s32 x, y, z, val;"),
    (6, "lop3.or.b32 d|p, a, b, c, 0x3f, q;"),
    (4, "shf.l.clamp.b32 r7, r1, r0, 16;"),
    (4, "prmt.b32.f4e r1, r2, r3, r4;"),
    // Data movement and conversion.
    (2, "mov.u32 %d, a[3];"),
    (2, "mov.b64 {lo, hi}, %x;"),
    (2, "mov.b128 {%b64lo, _}, %b128;"),
    (2, "mov.u32 %r1, %dynamic_smem_size;"),
    (2, "mov.v4.u32 %v, %tid;"),
    (2, "mov.u32 %r1, %cluster_ctaid.z;"),
    (2, "mov.u64 %rd1, fun+0x10;"),
    (4, "shfl.sync.bfly.b32 Ry|p, Rx, 0x10, 0x1f;"),
    (2, "ld.const.s32 d, tbl[tid];"),
    (2, "ld.global.b32 x, [240];"),
    (2, "ld.local.b32 x, [p + -8];"),
    (
        3,
        "ld.weak.global.L1::evict_last.L2::evict_first.L2::256B.L2::cache_hint.v8.b32 {a, b, c, d, e, f, g, _}, [rd], policy;",
    ),
    (2, "ld.param::func.v2.b64 {a, b}, [retval0 + 16];"),
    (2, "ld.global.nc.L1::no_allocate.L2::128B.f32 d, [a];"),
    (3, "ld.global.f32 d, [ugbl].unified, policy;"),
    (2, "ldu.global.v4.f32 {a, b, c, d}, [p];"),
    (2, "st.global.v4.s32 [p], {a, b, 0, d};"),
    (
        3,
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.s32 [addr], {b, c, d, e}, [mbar];",
    ),
    (3, "st.bulk.weak.shared::cta [dst], n, 0;"),
    (
        2,
        "multimem.ld_reduce.acquire.sys.global.add.acc::f32.v4.f16x2 {a, b, c, d}, [mc];",
    ),
    (1, "prefetch.param.tensormap [kernel_param_0];"),
    (2, "applypriority.global.L2::evict_normal [ptr], 128;"),
    (
        3,
        "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 policy, 1.0, 0;",
    ),
    (2, "isspacep.shared::cluster p, a;"),
    (2, "cvta.to.shared::cta.u64 q, p;"),
    (4, "cvt.rs.relu.satfinite.f16x2.f32 d, a, b, r;"),
    (3, "cvt.rs.satfinite.e2m1x4.f32 d, {a, b, e, f}, rbits;"),
    (4, "cvt.pack.sat.u8.s32.b32 d, a, b, c;"),
    (3, "mapa.shared::cluster.u32 d, smem, cta;"),
    (2, "getctarank.u64 d, a;"),
    (
        4,
        "cp.async.ca.shared.global.L2::cache_hint [a], [b + 4], 16, policy;",
    ),
    (1, "cp.async.wait_group 0;"),
    (
        4,
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [d], [s], size, [mbar];",
    ),
    (
        3,
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [d], [s], size;",
    ),
    (
        4,
        "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [d], [tm, {0, 1, x, y, z}], [mbar], {ow, oh, od};",
    ),
    (
        2,
        "cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4 [tm, {a, b, c, d, e}], policy;",
    ),
    (
        3,
        "tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [sMem], 0, new;",
    ),
    (
        3,
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [d], [s], 128;",
    ),
    // Texture and surface.
    (2, "tex.1d.v4.s32.s32 {r1, r2, r3, r4}, [tex_a, f1];"),
    (
        2,
        "tex.3d.v4.s32.s32 {r1, r2, r3, r4}|p, [tex_a, sampler_x, {f1, f2, f3, f4}];",
    ),
    (
        4,
        "tex.level.2d.v4.f32.f32 {a, b, c, d}, [t, {x, y}], lod, {ox, oy};",
    ),
    (
        2,
        "tld4.r.2d.v4.s32.f32 {r1, r2, r3, r4}, [tex_a, {f1, f2}];",
    ),
    (2, "txq.array_size.b32 r1, [tex_A];"),
    (2, "suld.b.2d.v4.b32.trap {a, b, c, d}, [surf_A, {x, y}];"),
    (2, "sust.p.1d.v2.b32.clamp [surf_B, {x}], {f1, f2};"),
    (2, "sured.b.add.2d.u32.trap [surf_A, {x, y}], r1;"),
    // Control flow.
    (1, "@!%p1 bra.uni $L__BB0_1;"),
    (2, "brx.idx.uni i, ts;"),
    (4, "call.uni (r), %rd1, (a, 1, 0f3F800000, b), prototype_0;"),
    (3, "call fptr, (x), Flist;"),
    (0, "@%p0 exit;"),
    (0, "ret.uni;"),
    // Barriers, atomics, warps.
    (3, "barrier.cta.red.popc.aligned.u32 r1, 1, !p;"),
    (0, "barrier.cluster.arrive.release.aligned;"),
    (0, "membar.sys;"),
    (0, "fence.proxy.async.shared::cta;"),
    (2, "fence.proxy.tensormap::generic.acquire.gpu [a], 128;"),
    (0, "fence.mbarrier_init.release.cluster;"),
    (3, "atom.add.noftz.v2.f16x2.global {a, b}, [p], {c, d};"),
    (4, "atom.cas.acquire.cta.shared.b128 d, [a], b, c;"),
    (3, "atom.global.exch.b32 _, [p], 1;"),
    (2, "red.relaxed.sys.global.add.f64 [a], b;"),
    (
        3,
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [a], b, [m];",
    ),
    (3, "vote.sync.any.pred p, !q, 0xffffffff;"),
    (3, "match.all.sync.b32 d|p, a, mask;"),
    (1, "activemask.b32 %r1;"),
    (3, "redux.sync.max.abs.NaN.f32 d, a, mask;"),
    (2, "elect.sync _|p, 0xffffffff;"),
    (0, "griddepcontrol.launch_dependents;"),
    (2, "mbarrier.init.shared::cta.b64 [shMem], 12;"),
    (
        2,
        "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [m];",
    ),
    (
        4,
        "mbarrier.try_wait.parity.acquire.cta.shared.b64 p, [m + 8], ph, 0x989680;",
    ),
    // Matrices.
    (
        3,
        "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {a, b, c, d, e, f, g, h}, [p], 16;",
    ),
    (
        4,
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {a, b, c, d}, {e, f, g, h}, {i, j}, {k, l, m, n};",
    ),
    (
        6,
        "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16 {a, b}, {c, d, e, f}, {g, h, i, j}, {k, l}, r, 0x0;",
    ),
    (
        8,
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0 {a, b, c, d}, {e, f, g, h}, {i, j}, {k, l, m, n}, sA, {0, 1}, sB, {bid, tid};",
    ),
    (
        2,
        "ldmatrix.sync.aligned.m8n16.x4.shared::cta.b8x16.b6x16_p32 {a, b, c, d}, [addr];",
    ),
    (
        2,
        "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [addr + 64], {a, b};",
    ),
    (2, "movmatrix.sync.aligned.m8n8.trans.b16 d, a;"),
    (
        8,
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {a, b, c, d}, descA, descB, p, -1, 1, 0, 1;",
    ),
    (1, "wgmma.wait_group.sync.aligned 0;"),
    (
        2,
        "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [s], 32;",
    ),
    (
        2,
        "tcgen05.ld.sync.aligned.16x128b.x2.pack::16b.b32 {a, b, c, d}, [taddr];",
    ),
    (
        3,
        "tcgen05.st.sync.aligned.16x32bx2.x1.unpack::16b.b32 [taddr], 2, {a};",
    ),
    (
        6,
        "tcgen05.mma.cta_group::1.kind::tf32.collector::a::fill [taddr], [a], b, idesc, {m0, m1, m2, m3}, p;",
    ),
    (
        7,
        "tcgen05.mma.cta_group::2.kind::mxf8f6f4.block_scale.scale_vec::1X [d], a, b, i, [sA], [sB], p;",
    ),
    (
        2,
        "tcgen05.cp.cta_group::1.64x128b.warpx2::02_13.b8x16.b4x16_p64 [taddr], desc;",
    ),
    (
        2,
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [m], mask;",
    ),
    (1, "tcgen05.shift.cta_group::1.down [taddr];"),
    // Video, miscellaneous, stack.
    (4, "vadd.s32.u32.s32.sat.min r1, r2.b0, r3.h1, c;"),
    (4, "vmad.s32.s32.u32.sat r0, -r1.b3, r2.h0, -r3;"),
    (4, "vset4.u32.u32.ne.add r1.b3210, r2.b7654, r3.b1032, c;"),
    (1, "pmevent.mask 0x5;"),
    (1, "setmaxnreg.dec.sync.aligned.u32 40;"),
    (1, "nanosleep.u32 42;"),
    (3, "alloca.u64 ptr, size, 16;"),
    (1, "stackrestore.u64 rptr;"),
    (
        2,
        "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {x, y, z, _}, handle;",
    ),
];

#[test]
fn every_family_parses_and_comes_out_as_it_went_in() {
    for (operands, statement) in STATEMENTS {
        let source = format!(".version 9.0\n.target sm_100a\n.entry k() {{ {statement} }}");
        let module = match parse(&source) {
            Ok(module) => module,
            Err(error) => panic!("{}", error.render("isa", &source)),
        };
        let body = module.functions().next().and_then(|f| f.body.as_ref());
        let stmts = &body.expect("a body").stmts;
        assert_eq!(stmts.len(), 1, "{statement}");
        let Stmt::Inst(inst) = &stmts[0] else {
            panic!("no instruction: {statement}")
        };
        assert_eq!(inst.operands.len(), *operands, "{statement}");
        assert_eq!(inst.span.text(&source), *statement);
        assert!(statement.contains(&inst.opcode()), "{statement}");
        let mut edits = Edits::new();
        edits.replace(inst.span, statement);
        assert_eq!(edits.apply(&source).as_deref(), Ok(&*source));
    }
}
