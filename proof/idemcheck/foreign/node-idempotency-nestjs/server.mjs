// A shop whose keys are @node-idempotency/nestjs's, as its README says, with the storage in memory that comes with it. It
// prints its address, and counts what it has made. The decorators are calls, so that it needs no compiler.
import "reflect-metadata";
import common from "@nestjs/common";
import core from "@nestjs/core";
import nodeIdempotency from "@node-idempotency/nestjs";

const { Body, Controller, Get, Headers, HttpException, Module, Post, Query } = common;
const made = new Map();
const failing = new Set();

class Things {
  list() { return []; }
  effects(tenant, thing) { return { count: made.get(`${tenant} ${thing}`) ?? 0 }; }
  fail(thing) { return failing.add(thing).size; }
  others(tenant, body) { return this.make(tenant, body, "others"); }
  async make(tenant, body, at) {
    if (body.colour === "none") throw new HttpException({ declined: true }, 402);
    await new Promise((resolve) => setTimeout(resolve, 20)); // a payment provider
    const thing = `${tenant} ${body.thing}`;
    made.set(thing, (made.get(thing) ?? 0) + 1);
    if (failing.delete(body.thing)) throw new Error("after the effect");
    return { made: thing, at };
  }
}

const decorate = (method, route, parameters, ...more) => {
  const descriptor = Object.getOwnPropertyDescriptor(Things.prototype, method);
  Reflect.defineMetadata("design:paramtypes", parameters.map(() => Object), Things.prototype, method);
  parameters.forEach((parameter, i) => parameter(Things.prototype, method, i));
  for (const decorator of [route, ...more]) decorator(Things.prototype, method, descriptor);
};
decorate("list", Get("things"), []);
decorate("effects", Get("effects"), [Headers("tenant"), Query("thing")]);
decorate("fail", Post("fail"), [Query("thing")]);
decorate("others", Post("others"), [Headers("tenant"), Body()], nodeIdempotency.Idempotent());
decorate("make", Post("things"), [Headers("tenant"), Body()], nodeIdempotency.Idempotent());
Controller()(Things);

class App {}
Module({
  imports: [nodeIdempotency.NodeIdempotencyModule.forRootAsync({ storage: { adapter: "memory" } })],
  controllers: [Things],
})(App);

const app = await core.NestFactory.create(App, { logger: false });
await app.listen(0, "127.0.0.1");
console.log(`http://127.0.0.1:${app.getHttpServer().address().port}`);
