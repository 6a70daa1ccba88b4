// An app that shows an ad, and reports a click on it, with nothing of Reticent's but the proto.
//
//     node ad.js ADDRESS TOKEN QUERY [click]
//
// QUERY is what the user searches for in the app.
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const PROTO = fileURLToPath(new URL("../../protos/reticent/v1/phone.proto", import.meta.url));
const { reticent } = grpc.loadPackageDefinition(loader.loadSync(PROTO, { longs: Number }));

const [address, token, query, click] = process.argv.slice(2);
if (query === undefined) {
  console.error("usage: node ad.js ADDRESS TOKEN QUERY [click]");
  process.exit(2);
}

const phone = new reticent.v1.Phone(address, grpc.credentials.createInsecure());
const metadata = new grpc.Metadata();
metadata.set("authorization", `Bearer ${token}`);

function call(method, request) {
  return new Promise((resolve) => {
    phone[method](request, metadata, (error, reply) => {
      if (error) {
        console.error(`the phone refused: ${grpc.status[error.code]}: ${error.details}`);
        process.exit(1);
      }
      resolve(reply);
    });
  });
}

const { ad } = await call("showAd", { query }); // after a second, whatever the reply is
console.log(ad ? `${ad.id}: ${ad.text}` : "no ad");
if (ad && click === "click") {
  await call("report", { clicked: ad.showing });
  console.log("clicked");
}
phone.close();
