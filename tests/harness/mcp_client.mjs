// A client made with @modelcontextprotocol/sdk: `node mcp_client.mjs SDK_FOLDER COMMAND ...`.
// Prints what it got as JSON, one result a line. Elicitations are accepted once it wrote their text, too.
const [sdk, command, ...args] = process.argv.slice(2);
const { Client } = await import(`${sdk}/dist/esm/client/index.js`);
const { StdioClientTransport } = await import(`${sdk}/dist/esm/client/stdio.js`);
const { ElicitRequestSchema } = await import(`${sdk}/dist/esm/types.js`);

const show = (value) => process.stdout.write(JSON.stringify(value) + "\n");
const client = new Client({ name: "test", version: "1" }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, async (request) => {
  show({ asked: request.params.message });
  return { action: "accept", content: {} };
});
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" }));
for await (const chunk of process.stdin.setEncoding("utf8").iterator()) {
  for (const line of chunk.split("\n").filter(Boolean)) {
    const { list, ...call } = JSON.parse(line);
    show(list ? (await client.listTools()).tools.map((tool) => tool.name) : await client.callTool(call));
  }
}
await client.close();
