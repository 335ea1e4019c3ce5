// A shop whose keys are @aws-lambda-powertools/idempotency's, as its documentation says: a function that is made
// idempotent by the key of its event and, with the argument "validate", refuses another body. Its cache is a map with the
// three commands of Redis that it needs. It prints its address, and counts what it has made.
import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import {
  IdempotencyAlreadyInProgressError, IdempotencyConfig, IdempotencyKeyError, IdempotencyValidationError, makeIdempotent,
} from "@aws-lambda-powertools/idempotency";
import { CachePersistenceLayer } from "@aws-lambda-powertools/idempotency/cache";

process.env.AWS_LAMBDA_FUNCTION_NAME = "shop";
const made = new Map();
const failing = new Set();
const cache = new Map();
const client = {
  get: async (name) => cache.get(name) ?? null,
  set: async (name, value, options) => (options?.NX && cache.has(name) ? null : cache.set(name, value) && "OK"),
  del: async (names) => names.filter((name) => cache.delete(name)).length,
};
const make = makeIdempotent(async ({ path, tenant, body }) => {
  const { thing, colour } = JSON.parse(body);
  if (colour === "none") return { status: 402, json: { declined: true } };
  await new Promise((resolve) => setTimeout(resolve, 20)); // a payment provider
  const name = `${tenant} ${thing}`;
  made.set(name, (made.get(name) ?? 0) + 1);
  if (failing.delete(thing)) throw new Error("after the effect");
  return { status: 201, json: { made: name, at: path } };
}, {
  persistenceStore: new CachePersistenceLayer({ client }),
  config: new IdempotencyConfig({
    eventKeyJmesPath: "key", throwOnNoIdempotencyKey: true,
    ...(process.argv[2] === "validate" && { payloadValidationJmesPath: "body" }),
  }),
});
const problems = new Map([
  [IdempotencyKeyError, 400], [IdempotencyAlreadyInProgressError, 409], [IdempotencyValidationError, 422],
]);

const server = createServer(async (req, res) => {
  const { pathname: path, searchParams: query } = new URL(req.url, "http://host");
  const tenant = req.headers.tenant;
  const send = (status, json) => res.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(json));
  if (path === "/effects") return send(200, { count: made.get(`${tenant} ${query.get("thing")}`) ?? 0 });
  if (path === "/fail") return send(200, failing.add(query.get("thing")).size);
  if (path === "/expire") return send(200, cache.clear() ?? {});
  if (req.method === "GET") return send(200, []);
  try {
    const event = { key: req.headers["idempotency-key"], path, tenant, body: await text(req) };
    const { status, json } = await make(event, { getRemainingTimeInMillis: () => 10_000 });
    send(status, json);
  } catch (error) {
    send(problems.get(error.constructor) ?? problems.get(error.cause?.constructor) ?? 500, { error: error.message });
  }
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
