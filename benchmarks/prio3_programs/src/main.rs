//! Prints the shortest times of Prio3 with libprio-rs for each number of counters of 0 or 1, a line of JSON each.

use prio::codec::{Encode, ParameterizedDecode};
use prio::vdaf::prio3::{optimal_chunk_length, Prio3Count, Prio3SumVec};
use prio::vdaf::{Aggregatable, Aggregator, Client, Collector, PrepareTransition, Vdaf};
use std::time::Instant;

const AGGREGATORS: u8 = 2;
const CONTEXT: &[u8] = b"benchmark";
const VERIFY_KEY: [u8; 32] = [7; 32];

fn main() {
    let mut arguments = std::env::args().skip(1).map(|each| each.parse().expect("a number"));
    let seconds = arguments.next().expect("usage: prio3_times SECONDS COUNTERS...");
    for counters in arguments {
        if counters == 1 {
            let one = Prio3Count::new_count(AGGREGATORS).unwrap();
            measure(&one, &true, 1, seconds, |sums| *sums == 1);
        } else {
            let chunk = optimal_chunk_length(counters);
            let many = Prio3SumVec::new_sum_vec(AGGREGATORS, 1, counters, chunk).unwrap();
            measure(&many, &vec![1; counters], counters, seconds, |sums| sums.iter().all(|sum| *sum == 1));
        }
    }
}

/// The phone's part is `shard` and encoding; the servers' part is all that both do for one contribution.
fn measure<V>(
    vdaf: &V,
    measurement: &V::Measurement,
    counters: usize,
    seconds: usize,
    is_right: impl Fn(&V::AggregateResult) -> bool,
) where
    V: Vdaf<AggregationParam = ()> + Client<16> + Aggregator<32, 16> + Collector,
{
    let (mut phone, mut servers, mut upload, mut between) = (f64::MAX, f64::MAX, 0, 0);
    let began = Instant::now();
    while began.elapsed().as_secs() < seconds as u64 {
        let nonce = [3; 16];
        let start = Instant::now();
        let (public, shares) = vdaf.shard(CONTEXT, measurement, &nonce).unwrap();
        let public = public.get_encoded().unwrap();
        let shares: Vec<_> = shares.iter().map(|share| share.get_encoded().unwrap()).collect();
        phone = phone.min(start.elapsed().as_secs_f64());
        upload = nonce.len() + public.len() + shares.iter().map(Vec::len).sum::<usize>();

        let mut sums = [vdaf.aggregate_init(&()), vdaf.aggregate_init(&())];
        let start = Instant::now();
        let (mut states, mut prepared) = (Vec::new(), Vec::new());
        for (server, share) in shares.iter().enumerate() {
            let public = V::PublicShare::get_decoded_with_param(vdaf, &public).unwrap();
            let share = V::InputShare::get_decoded_with_param(&(vdaf, server), share).unwrap();
            let (state, part) = vdaf
                .prepare_init(&VERIFY_KEY, CONTEXT, server, &(), &nonce, &public, &share)
                .unwrap();
            states.push(state);
            prepared.push(part);
        }
        let parts: Vec<_> = prepared.iter().map(|part| part.get_encoded().unwrap()).collect();
        let message = vdaf.prepare_shares_to_prepare_message(CONTEXT, &(), prepared).unwrap();
        for (state, sum) in states.into_iter().zip(&mut sums) {
            match vdaf.prepare_next(CONTEXT, state, message.clone()).unwrap() {
                PrepareTransition::Finish(output) => sum.accumulate(&output).unwrap(),
                PrepareTransition::Continue(..) => unreachable!("Prio3 has one round"),
            }
        }
        servers = servers.min(start.elapsed().as_secs_f64());
        // The leader forwards the helper's share and the public share with its part; the message comes back.
        between = public.len() + shares[1].len() + parts[0].len() + message.get_encoded().unwrap().len();
        assert!(is_right(&vdaf.unshard(&(), sums, 1).unwrap()), "a wrong sum");
    }
    println!(
        "{{\"counters\": {counters}, \"phone\": {phone:e}, \"servers\": {servers:e}, \"upload\": {upload}, \
         \"between\": {between}}}"
    );
}
