//! Rules allow, deny, ask and approval types (section 3).
