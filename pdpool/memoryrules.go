package pdpool

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pdpool/pdpool/kvlayout"
)

// mostKVMemory is more than any GPU has, in bytes.
const mostKVMemory = 1 << 50

// kvMemory is engine.kvCacheMemory in bytes, 0 where it is not set or out of range.
func kvMemory(q *resource.Quantity) int64 {
	if q == nil || !inRange(q) {
		return 0
	}
	return q.Value()
}

// inRange looks at the size alone: the value of a quantity beyond 64 bits is any number,
// and to compare one with a large exponent takes minutes.
func inRange(q *resource.Quantity) bool {
	bytes := q.AsApproximateFloat64()
	return bytes > 0 && bytes <= mostKVMemory
}

// checkMemory holds that a rank's memory for KV cache is an amount of memory, with room
// for a block.
func checkMemory(q *resource.Quantity, r *Resolved) []kvlayout.Problem {
	if q == nil {
		return nil
	}
	const path = "engine.kvCacheMemory"
	if !inRange(q) {
		return []kvlayout.Problem{refuse("kv-memory", path, fmt.Sprintf("%s is %s, which is no memory of a GPU", path, clip(q.String(), maxSpelled)),
			reasonMemory, "set it to more than 0 and at most 1Pi, such as 64Gi, or remove it for the engine's own choice")}
	}
	for _, s := range []*Side{&r.Prefill, &r.Decode} {
		if block, tokens := r.block(s); block > r.KVMemory {
			return []kvlayout.Problem{refuse("kv-memory", path,
				fmt.Sprintf("%s is %d bytes, and one block of %d tokens takes %d bytes on a rank of %s", path, r.KVMemory, tokens, block, s.Role),
				reasonMemory, fmt.Sprintf("set %s to several times %d", path, block))}
		}
	}
	return nil
}

// block is a block of a role's rank in bytes and tokens, 0 where the model is not known
// or can't be cached so.
func (r *Resolved) block(s *Side) (bytes int64, tokens int) {
	if r.HasGeometry {
		return int64(s.BlockSize) * kvlayout.TokenBytes(r.Geometry, s.KVType, s.Layout), s.BlockSize
	}
	if r.KnownModel == nil {
		return 0, 0
	}
	p, err := r.KnownModel.Pool(r.Instance(s.Role).Cache())
	if err != nil {
		return 0, 0 // why is another rule's
	}
	return p.BlockBytes, p.BlockTokens
}
