//! Compile errors of the attributes; what they generate is tested in the facade, which it needs.

#[test]
fn tck_5_refused_functions_fail_to_compile_at_the_culprit() {
    // MAC-1 and MAC-2: one file per kind of refusal.
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
