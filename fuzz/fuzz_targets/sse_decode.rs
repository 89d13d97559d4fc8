#![no_main]

#[global_allocator]
static COUNTED: peak_alloc::PeakAlloc = qitos_fuzz::PEAK;

libfuzzer_sys::fuzz_target!(|input: &[u8]| qitos_fuzz::check_sse(input));
