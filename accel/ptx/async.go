package ptx

// asyncText continues formText: clusters, which have one block here, and operations that are asynchronous on devices
// and complete on an mbarrier.
const asyncText = `
barrier | cluster arrive release/relaxed? aligned? | | -
barrier | cluster wait acquire? aligned? | | -
mapa | shared? | u32 u64 | Avc
getctarank | shared? | u32 u64 | Cv
mbarrier | init shared? | b64 | Mc
mbarrier | inval shared? | b64 | M
mbarrier | arrive/arrive_drop release/relaxed? cta/cluster? shared? | b64 | AMc?
mbarrier | arrive/arrive_drop release? cta? shared? noComplete | b64 | AMc
mbarrier | arrive/arrive_drop expect_tx release/relaxed? cta/cluster? shared? | b64 | AMc
mbarrier | expect_tx/complete_tx relaxed? cta/cluster? shared? | b64 | Mc
mbarrier | test_wait acquire/relaxed? cta/cluster? shared? | b64 | PMa
mbarrier | test_wait parity acquire/relaxed? cta/cluster? shared? | b64 | PMc
mbarrier | try_wait acquire/relaxed? cta/cluster? shared? | b64 | PMac?
mbarrier | try_wait parity acquire/relaxed? cta/cluster? shared? | b64 | PMcc?
mbarrier | pending_count | b64 | Ca
cp | async mbarrier arrive noinc? shared? | b64 | M
cp | async bulk shared global mbarrier::complete_tx::bytes | | mMcm
cp | async bulk shared global mbarrier::complete_tx::bytes L2::cache_hint | | mMcmh
cp | async bulk shared global mbarrier::complete_tx::bytes multicast::cluster | | mMcmk
cp | async bulk shared global mbarrier::complete_tx::bytes multicast::cluster L2::cache_hint | | mMcmkh
cp | async bulk shared mbarrier::complete_tx::bytes | | mmcm
cp | async bulk global shared bulk_group | | Mmc
cp | async bulk global shared bulk_group L2::cache_hint | | Mmch
cp | async bulk global shared bulk_group cp_mask | | Mmck
cp | async bulk global shared bulk_group L2::cache_hint cp_mask | | Mmchk
cp | async bulk prefetch L2 global | | Mc
cp | async bulk prefetch L2 global L2::cache_hint | | Mch
cp | async bulk commit_group | | -
cp | async bulk wait_group read? | | c
cp | reduce async bulk shared mbarrier::complete_tx::bytes add | u32 s32 u64 | mmcm
cp | reduce async bulk shared mbarrier::complete_tx::bytes min/max | u32 s32 | mmcm
cp | reduce async bulk shared mbarrier::complete_tx::bytes inc/dec | u32 | mmcm
cp | reduce async bulk shared mbarrier::complete_tx::bytes and/or/xor | b32 | mmcm
cp | reduce async bulk global shared bulk_group add | u32 s32 u64 f32 f64 | Mmc
cp | reduce async bulk global shared bulk_group add noftz | f16 bf16 | Mmc
cp | reduce async bulk global shared bulk_group min/max | u32 s32 u64 s64 f16 bf16 | Mmc
cp | reduce async bulk global shared bulk_group inc/dec | u32 | Mmc
cp | reduce async bulk global shared bulk_group and/or/xor | b32 b64 | Mmc
st | bulk weak? shared? | | Msc
st | async weak? shared? mbarrier::complete_tx::bytes v2/v4? | b32 b64 u32 u64 s32 s64 f32 f64 | MrM
red | async relaxed cluster shared? mbarrier::complete_tx::bytes add | u32 s32 u64 | MaM
red | async relaxed cluster shared? mbarrier::complete_tx::bytes min/max | u32 s32 | MaM
red | async relaxed cluster shared? mbarrier::complete_tx::bytes inc/dec | u32 | MaM
red | async relaxed cluster shared? mbarrier::complete_tx::bytes and/or/xor | b32 | MaM
`
