#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| warpalloc_fuzz::ptx_parse(data));
