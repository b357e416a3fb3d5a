package enginesim

import (
	"hash/fnv"
	"strings"
)

// vocabulary is what the simulator can say. It can read any word.
var vocabulary = strings.Fields(`
	amber anchor apple arrow autumn badge bamboo barley basin beacon birch blossom bolt branch breeze bridge
	bronze brook bucket cabin candle canyon carbon cedar chalk cherry cinder circle cliff clover cobalt comet
	copper coral cotton crane creek crystal dawn delta desert diamond dolphin dragon dune eagle ember falcon
	feather fern flame flint forest fossil fountain garden garnet ginger glacier granite harbor harvest hazel heron
	hollow honey horizon indigo island ivory jade jasmine juniper kernel kettle lagoon lantern laurel lemon lily
	linen lotus lunar magnet mango maple marble meadow meteor mint mirror mosaic moss nebula needle nickel
	oak oasis ocean olive onyx opal orbit orchid otter oyster pearl pebble pepper pine plum polar
	poppy prairie quartz rain raven reef ribbon ridge river robin ruby saffron sage sand sapphire shadow
	silver slate snow sparrow spring star stone storm summit sunset swan tango thistle thunder tide tiger
	timber topaz torch tulip tundra valley velvet violet walnut water willow winter wolf wren yarrow zenith`)

// wordTokens are the ids of the vocabulary, in its order.
var wordTokens = func() []uint32 {
	ids := make([]uint32, len(vocabulary))
	for i, w := range vocabulary {
		ids[i] = tokenOf(w)
	}
	return ids
}()

var wordOf = func() map[uint32]string {
	words := make(map[uint32]string, len(vocabulary))
	for i, id := range wordTokens {
		words[id] = vocabulary[i]
	}
	return words
}()

// maxToken is the largest token id.
const maxToken = 1<<31 - 1

// tokenOf is the id of a word, a hash of it.
func tokenOf(word string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(word))
	return h.Sum32() & maxToken
}

// Tokenize makes one token of each word of a text; words end at white space.
func Tokenize(text string) []uint32 {
	words := strings.Fields(text)
	ids := make([]uint32, len(words))
	for i, w := range words {
		ids[i] = tokenOf(w)
	}
	return ids
}

// Text spells tokens that the simulator has answered.
func Text(tokens []uint32) string {
	var b strings.Builder
	for i, id := range tokens {
		b.WriteString(piece(id, i == 0))
	}
	return b.String()
}

// piece is the text of one token of an answer.
func piece(id uint32, first bool) string {
	if first {
		return wordOf[id]
	}
	return " " + wordOf[id]
}

// message is one turn of a chat.
type message struct{ role, text string }

// template is the prompt of a chat: each turn after a mark of its role, and the
// mark of the answer at the end.
func template(messages []message) string {
	var b strings.Builder
	for _, m := range messages {
		b.WriteString("<|" + m.role + "|> " + m.text + "\n")
	}
	b.WriteString("<|assistant|>")
	return b.String()
}
