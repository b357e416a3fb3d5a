package engine

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// prefixProgram is a program that runs another one named by its own arguments.
type prefixProgram struct {
	valued string // options of it that take a value, between blanks
	skip   int    // arguments of its own in front of the command
}

var prefixPrograms = map[string]prefixProgram{
	"exec": {valued: "-a"}, "nohup": {}, "command": {}, "builtin": {}, "time": {valued: "-f -o --format --output"},
	"setsid": {}, "unbuffer": {}, "stdbuf": {valued: "-i -o -e"}, "tini": {valued: "-p -e"}, "dumb-init": {valued: "-r --rewrite"}, "catatonit": {},
	"sudo": {valued: "-u -g -h -p -C -r -t -D --user --group"}, "gosu": {skip: 1},
	"nice": {valued: "-n --adjustment"}, "ionice": {valued: "-c -n --class --classdata"}, "chrt": {valued: "-p", skip: 1},
	"timeout": {valued: "-k -s --kill-after --signal", skip: 1}, "taskset": {skip: 1}, "numactl": {valued: "-N -m -C -i -p -P --membind --cpunodebind --physcpubind --preferred --interleave"},
}

// launcherPrograms run a command somewhere in their arguments; their options are
// not read.
var launcherPrograms = []string{
	"srun", "sbatch", "mpirun", "mpiexec", "torchrun", "ray", "uv", "uvx", "poetry", "pipenv", "conda", "micromamba", "accelerate",
	"apptainer", "singularity", "enroot", "tmux", "screen", "script", "su", "runuser", "ssh", "pdsh", "watch", "flock", "chroot", "nsenter", "parallel", "eval", "docker-compose",
}

var enginePrograms = map[string]kvlayout.Engine{
	"vllm": kvlayout.VLLM, "sglang": kvlayout.SGLang, path.Base(SimulatorBinary): kvlayout.Simulator,
}

// handsOver are modules that serve by an engine: they take its arguments, and others
// for themselves.
var handsOver = regexp.MustCompile(`^(dynamo|infera\.engine)\.(vllm|sglang)$`)

// notContinued is about a line of flags by itself.
const notContinued = "this line begins with flags and belongs to no command: the line before it does not end in a backslash, or a comment ends it"

var shells = []string{"bash", "sh", "dash", "zsh", "ash"}

// start finds the engine in a command, through what it is wrapped in.
func (c command) start() {
	if bare := c.shell.bare; bare != "" && !runsPrograms(c.words[0].text) && looksServed(c.words) && flagsOf(bare, c.words) {
		c.bare = true
		c.launch(bare, c.words[0].at, c.words)
		return
	}
	if first := c.words[0]; len(c.shell.out.Launches) > 0 && c.shell.bare == "" && flagsOf(kvlayout.VLLM, c.words[:1]) {
		c.shell.keep(Note{Place: c.shell.place(first.at), Kind: Unread, Text: notContinued})
		return
	}
	for range 16 {
		if len(c.words) == 0 || c.engine() || !c.unwrap() {
			return
		}
	}
}

// enterContainer goes on with what a container runs.
func (c command) enterContainer(entrypoint, args []word, image word) {
	// Arguments of which nothing says whose they are count as those of the engine that
	// the text is read for.
	alone := image.text == "" && c.shell.bare != "" && len(args) > 0
	if c.enter(image, entrypoint, args) || alone {
		c.start()
	}
}

// flagsOf says that one of the arguments is a flag of the engine's.
func flagsOf(kind kvlayout.Engine, words []word) bool {
	d := dialectOf(kind)
	return slices.ContainsFunc(words[:min(len(words), maxNested)], func(w word) bool {
		name, _, _ := strings.Cut(w.text, "=")
		name, _, _ = strings.Cut(name, " ")
		if len(name) < 2 || name[0] != '-' {
			return false
		}
		f, _ := d.identify(name)
		short, _ := d.glued(name)
		return f.Known || f.listed || short.name != ""
	})
}

// unwrap takes one program off the command that runs another one; false when the
// command has been dealt with.
func (c *command) unwrap() bool {
	name := path.Base(c.words[0].text)
	wrapper, ok := prefixPrograms[name]
	switch {
	case ok:
		c.words = wrapper.after(c.words)
	case name == "env":
		c.envProgram()
	case name == "docker" || name == "podman" || name == "nerdctl":
		return c.container()
	case name == "kubectl" || name == "oc":
		return c.kubectl()
	case slices.Contains(shells, name):
		c.shellProgram()
		return false
	case slices.Contains(launcherPrograms, name):
		c.search()
		return false
	case c.shell.written(c.words[0].text) != nil:
		c.open(c.shell.written(c.words[0].text), c.words[1:])
		return false
	default:
		c.installs()
		return false
	}
	return true
}

// engine reports whether the command itself starts an engine, and keeps it if so.
func (c command) engine() bool {
	kind, n := engineProgram(c.words)
	if kind == "" {
		return n > 0
	}
	c.through = handsOver.FindString(c.words[n-1].text)
	c.launch(kind, c.words[0].at, c.words[n:])
	return true
}

// engineProgram says which engine the words start and how many of them name it.
// An engine's program that serves nothing has a number and no engine.
func engineProgram(words []word) (kvlayout.Engine, int) {
	text := func(i int) string {
		if i < len(words) {
			return words[i].text
		}
		return ""
	}
	name := path.Base(text(0))
	if kind, ok := enginePrograms[name]; ok {
		if text(1) == "serve" {
			return kind, 2
		}
		return "", 1
	}
	if !strings.HasPrefix(name, "python") {
		return "", 0
	}
	i := 1
	for ; strings.HasPrefix(text(i), "-") && !strings.HasPrefix(text(i), "-m"); i++ {
		if text(i) == "-X" || text(i) == "-W" {
			i++
		}
	}
	module, n := text(i), i+1
	if rest, ok := strings.CutPrefix(module, "-m"); ok {
		if module = rest; rest == "" {
			module, n = text(i+1), i+2
		}
	}
	return engineModule(module, text(n), n)
}

// engineModule is engineProgram for a module or script of Python, of which n words
// have been read and next follows.
func engineModule(module, next string, n int) (kvlayout.Engine, int) {
	if script, ok := strings.CutSuffix(module, ".py"); ok {
		module = strings.ReplaceAll(script, "/", ".")
	}
	if handsOver.MatchString(module) {
		return enginePrograms[module[strings.LastIndexByte(module, '.')+1:]], n
	}
	switch {
	case strings.HasSuffix(module, "vllm.entrypoints.openai.api_server"):
		return kvlayout.VLLM, n
	case strings.HasSuffix(module, "sglang.launch_server"), strings.HasSuffix(module, "sglang.srt.launch_server"):
		return kvlayout.SGLang, n
	case next != "serve":
	case module == "vllm" || module == "vllm.entrypoints.cli.main":
		return kvlayout.VLLM, n + 1
	case module == "sglang" || module == "sglang.cli.main":
		return kvlayout.SGLang, n + 1
	}
	return "", 0
}

// after is what the program runs.
func (p prefixProgram) after(words []word) []word {
	i := 1
	for i < len(words) && strings.HasPrefix(words[i].text, "-") {
		option := words[i].text
		i++
		if option == "--" {
			break
		}
		if option == "-c" && p.skip == 1 { // taskset -c 0-7: the list is the argument of its own
			continue
		}
		if slices.Contains(strings.Fields(p.valued), option) {
			i++
		}
	}
	return words[min(i+p.skip, len(words)):]
}

// envProgram reads env's options and settings.
func (c *command) envProgram() {
	env := slices.Clone(c.env)
	words := c.words
	c.words = nil
	for i := 1; i < len(words); i++ {
		w := words[i]
		n := nameLength(w.text)
		switch {
		case w.text == "-i" || w.text == "-" || w.text == "--ignore-environment":
			c.alone, env = true, nil
		case (w.text == "-u" || w.text == "--unset") && i+1 < len(words):
			i++
			unset := words[i].text
			if !c.alone {
				env = append(c.shell.vars.environment(), env...)
				c.alone = true
			}
			env = slices.DeleteFunc(env, func(s setting) bool { return s.name == unset })
		case w.text == "-C" || w.text == "--chdir":
			i++
		case strings.HasPrefix(w.text, "-"):
		case n > 0 && n < len(w.text) && w.text[n] == '=':
			env = c.shell.also(env, w.setting(n))
		default:
			c.words, c.env = words[i:], env
			return
		}
	}
}

// setting splits the word NAME=value, whose name has n bytes.
func (w word) setting(n int) setting {
	return setting{name: w.text[:n], value: variable{words: []word{{text: w.text[n+1:], open: w.open, at: w.at, body: w.place(n + 1)}}}, at: w.at}
}

// shellProgram reads the text after -c.
func (c command) shellProgram() {
	for i, w := range c.words[1:] {
		if d := c.shell.written(w.text); d != nil {
			c.open(d, c.words[i+2:])
			return
		}
		if !strings.HasPrefix(w.text, "-") && !strings.HasPrefix(w.text, "+") {
			if strings.HasSuffix(w.text, ".sh") {
				c.shell.note(w.at, "the script %s is not read", brief(w.text))
				return
			}
			continue // the value of -o
		}
		if strings.HasPrefix(w.text, "-") && !strings.HasPrefix(w.text, "--") && strings.HasSuffix(w.text, "c") && i+2 < len(c.words) {
			c.inside(c.words[i+2], c.words[min(i+4, len(c.words)):])
			return
		}
	}
	if c.stdin != nil {
		c.open(c.stdin, nil)
	}
}

// inside reads a text inside the text, with its arguments where they are known.
func (c command) inside(w word, args []word) {
	r := c.shell.reader
	if c.shell.depth == maxDepth || r.nested == maxNested {
		r.note(w.at, "commands inside commands are read up to %d deep and %d in all: this one was not", maxDepth, maxNested)
		return
	}
	r.nested++
	inner := &shell{
		reader: r, src: w.text, wrote: w.origin(), depth: c.shell.depth + 1, vars: newScope(c.given()),
		image: c.image, host: c.host, functions: c.shell.functions, callDepth: c.shell.callDepth,
	}
	if args != nil {
		inner.setArguments(args)
	}
	inner.all()
}

// search looks for an engine in the arguments of a program whose options are not
// known, also in a text that is one argument.
func (c command) search() {
	for i := 1; i < len(c.words); i++ {
		w := c.words[i]
		if kind, n := engineProgram(c.words[i:]); kind != "" {
			c.through = handsOver.FindString(c.words[i+n-1].text)
			c.launch(kind, w.at, c.words[i+n:])
			return
		}
		if name := path.Base(w.text); name == "docker" || name == "podman" || name == "env" || slices.Contains(shells, name) {
			c.words = c.words[i:]
			c.start()
			return
		}
		if strings.ContainsAny(w.text, " \n") && (strings.Contains(w.text, "vllm") || strings.Contains(w.text, "sglang")) {
			c.inside(w, nil)
			return
		}
		if d := c.shell.written(w.text); d != nil {
			c.open(d, c.words[i+1:])
			return
		}
	}
	if c.stdin != nil {
		c.open(c.stdin, nil)
	}
}

// installs notes the release of an engine that pip is told to install.
func (c command) installs() {
	for _, w := range c.words[1:] {
		name, version, ok := strings.Cut(w.text, "==")
		if !ok || name != "vllm" && name != "sglang" || w.open != "" {
			continue
		}
		if _, ok := kvlayout.ParseRelease(version); ok {
			c.shell.installed[enginePrograms[name]] = version
		}
	}
}
