// The rooms of the console, in the order of the bar. A room is a module `rooms/<name>.js` served at `/<name>` and below
// it; it exports `open(root, context)`, which fills `root` and returns a function that closes the room. To add a room,
// write its module and list it here; the service serves its path by itself. Pages are styled by `pages.css`. What `context`
// has stands in `app.js`.

export const ROOMS = [
  { path: "/overview", title: "Overview", roles: ["viewer", "reviewer", "admin"], load: () => import("./rooms/overview.js") },
  { path: "/approvals", style: null, title: "Approvals", roles: ["reviewer", "admin"], load: () => import("./rooms/approvals.js") },
  { path: "/grants", title: "Grants", roles: ["viewer", "reviewer", "admin"], load: () => import("./rooms/grants.js") },
  { path: "/alerts", title: "Alerts", roles: ["viewer", "reviewer", "admin"], load: () => import("./rooms/alerts.js") },
  { path: "/agents", title: "Agents", roles: ["viewer", "reviewer", "admin"], load: () => import("./rooms/agents.js") },
  { path: "/runs", title: "Runs", roles: ["viewer", "reviewer", "admin"], load: () => import("./rooms/runs.js") },
  { path: "/policies", title: "Policies", roles: ["viewer", "reviewer", "admin"], load: () => import("./rooms/policies.js") },
  { path: "/presets", title: "Presets", roles: ["viewer", "reviewer", "admin"], load: () => import("./rooms/presets.js") },
  { path: "/tools", title: "Tools", roles: ["viewer", "reviewer", "admin"], load: () => import("./rooms/tools.js") },
  { path: "/changes", title: "Changes", roles: ["admin"], load: () => import("./rooms/changes.js") },
  { path: "/audit", title: "Audit", roles: ["admin"], load: () => import("./rooms/audit.js") },
  { path: "/webhooks", title: "Webhooks", roles: ["admin"], load: () => import("./rooms/webhooks.js") },
  { path: "/channels", title: "Channels", roles: ["admin"], load: () => import("./rooms/channels.js") },
  { path: "/people", title: "People and keys", roles: ["admin"], load: () => import("./rooms/people.js") },
  { path: "/status", title: "Health", roles: ["viewer", "reviewer", "admin"], load: () => import("./rooms/status.js") },
].map((room) => ({ style: "/console/pages.css", ...room }));
