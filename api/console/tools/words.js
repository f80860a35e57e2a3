// What a tool may be declared as.

export const KINDS = ["shell", "code", "files", "sql", "http", "browser", "search", "mail", "chat", "calendar", "contacts", "payments", "cloud",
  "devops", "repository", "tickets", "crm", "users", "memory", "agents", "clock", "other"];
export const EFFECTS = ["read", "write", "execute", "send", "pay", "delete"];
