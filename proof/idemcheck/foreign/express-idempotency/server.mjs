// A shop whose keys are express-idempotency's, as its README says. It prints its address, and counts what it has made.
import express from "express";
import idempotency from "express-idempotency";

const made = new Map();
const failing = new Set();
const app = express();
app.use(express.json());
app.get("/things", (_, res) => res.json([]));
app.get("/effects", (req, res) => res.json({ count: made.get(`${req.get("Tenant")} ${req.query.thing}`) ?? 0 }));
app.post("/fail", (req, res) => res.json(failing.add(req.query.thing).size));
app.use(idempotency.idempotency());
app.post(["/things", "/others"], async (req, res) => {
  const service = idempotency.getSharedIdempotencyService();
  if (service.isHit(req)) return;
  if (req.body.colour === "none") {
    res.status(402).json({ declined: true });
    return;
  }
  await new Promise((resolve) => setTimeout(resolve, 20)); // a payment provider
  const thing = `${req.get("Tenant")} ${req.body.thing}`;
  made.set(thing, (made.get(thing) ?? 0) + 1);
  if (failing.delete(req.body.thing)) {
    service.reportError(req);
    res.status(500).json({ error: "after the effect" });
    return;
  }
  res.status(201).json({ made: thing, at: req.path });
});
const server = app.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
