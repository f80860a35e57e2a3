// What was typed and not sent, by user and what it is about: it outlives another room, and a session that ends meanwhile.

const drafts = new Map();

export function draftsOf(email) {
  const key = (id) => JSON.stringify([email, id]);
  return {
    get: (id) => drafts.get(key(id)) ?? "",
    keep(id, text) {
      if (text) drafts.set(key(id), text);
      else drafts.delete(key(id));
    },
  };
}
