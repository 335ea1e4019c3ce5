// Reads requests from stdin, and writes for each whether the Standard Webhooks library accepts it with the secret.
import { readFileSync } from "node:fs";
import { Webhook } from "standardwebhooks";

const results = JSON.parse(readFileSync(0, "utf8")).map(({ secret, headers, body }) => {
  try {
    new Webhook(secret).verify(Buffer.from(body, "base64").toString(), headers);
    return true;
  } catch {
    return false;
  }
});
process.stdout.write(JSON.stringify(results));
