// How a call's decision is said, and the tone of its mark.

export const STATUS = { allowed: "Allowed", blocked: "Blocked", awaiting_approval: "Waiting" };
export const TONE = { allowed: "allow", blocked: "block", awaiting_approval: "warn" };
