// Reads approvals: one by its id, and the page that a view shows.

/** `focusedId` is that of the link; `signal` ends all requests. */
export function makeReader(service, signal, focusedId) {
  const get = (path) => service.request("GET", path, undefined, signal);

  /** The approval as `{approvalId, text, approval}`; `approval` null when there is none of this id. */
  async function find(approvalId, seen = document.hasFocus()) {
    try {
      const { text, value } = await get(`/v1/approvals/${encodeURIComponent(approvalId)}?seen=${seen}`);
      return { approvalId, text, approval: value };
    } catch (error) {
      if (error.status === 404) return { approvalId, text: "", approval: null };
      throw error;
    }
  }

  /** The rows of a page with that of the link at their head, also when it would come on a later page. */
  async function focusedFirst(page, one, limit) {
    let linked = page.find((each) => each.approvalId === focusedId);
    if (!linked && page.length >= limit) linked = (one?.approvalId === focusedId ? one : await find(focusedId)).approval;
    return linked?.status === "pending" ? [linked, ...page.filter((each) => each !== linked)] : page;
  }

  /** `{found, total, waiting, one}`: rows, of how many, how many wait in all, and the approval `looking`. */
  async function page(view, limit, looking) {
    const pending = view === "pending";
    const status = view === "all" ? "" : `status=${view}&`;
    const [rows, one, waiting] = await Promise.all([
      get(`/v1/approvals?${status}order=${pending ? "asc" : "desc"}&limit=${limit}`),
      looking ? find(looking) : null,
      pending ? null : get("/v1/approvals?status=pending&limit=1"),
    ]);
    const found = pending && focusedId ? await focusedFirst(rows.value, one, limit) : rows.value;
    return { found, one, total: rows.total, waiting: (waiting ?? rows).total };
  }

  return { find, page };
}
