//! ToolResult v2: legal states by construction (RES-1 to RES-19).
