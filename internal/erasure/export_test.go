package erasure

// EraseFew is Erase with the smallest limits.
var EraseFew = limits{batch: 2, orders: 3, keys: 2}.erase
