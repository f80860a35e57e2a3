// The rooms of the console, in the order of the bar. A room is a module `rooms/<name>.js` served at `/<name>`, with
// `{path, title, roles, open(root, context)}`; `open` fills `root` and returns a function that closes the room.
// To add a room, write its module and list it here; the service serves its path by itself.

import approvals from "./rooms/approvals.js";

export const ROOMS = [approvals];
