package engine

import (
	"path"
	"slices"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// containerSwitches are the options of docker run and podman run without a value;
// every other option has one.
var containerSwitches = []string{
	"--detach", "--interactive", "--tty", "--rm", "--init", "--privileged", "--read-only", "--publish-all", "--oom-kill-disable",
	"--no-healthcheck", "--disable-content-trust", "--sig-proxy", "--quiet", "--replace", "--help", "--no-hosts", "--rmi", "--env-host",
}

const (
	containerLetters       = "ditPqT" // one-letter switches
	containerValuedLetters = "evpwuhlmcan"
)

// box is what the options of a container say.
type box struct {
	env        []setting
	entrypoint []word
	host       bool
}

// container reads docker run and docker exec; false when it is neither.
func (c *command) container() bool {
	i := 1
	for i < len(c.words) && slices.Contains([]string{"container", "compose", "--debug"}, c.words[i].text) {
		i++
	}
	if i >= len(c.words) || c.words[i].text != "run" && c.words[i].text != "exec" {
		return false
	}
	exec := c.words[i].text == "exec" || i > 1 && c.words[i-1].text == "compose"
	var b box
	i = c.containerOptions(i+1, &b)
	if i >= len(c.words) {
		return false
	}
	image, rest := c.words[i], c.words[i+1:]
	c.env, c.alone, c.host = b.env, true, b.host
	if exec {
		c.words = rest
		return true
	}
	c.image = image.text
	if image.open != "" {
		c.image = ""
		c.shell.note(image.at, "the image %s is not known, and so is the version of the engine", brief(image.text))
	}
	return c.enter(image, b.entrypoint, rest)
}

// enter goes on with what the image would run.
func (c *command) enter(image word, entrypoint, args []word) bool {
	c.words = append(slices.Clip(entrypoint), args...)
	if len(c.words) == 0 || len(entrypoint) > 0 || runsPrograms(c.words[0].text) {
		return len(c.words) > 0
	}
	name, _, _ := strings.Cut(path.Base(image.text), ":")
	if strings.Contains(name, "vllm") && !strings.Contains(name, "router") && looksServed(c.words) {
		c.launch(kvlayout.VLLM, image.at, c.words)
	}
	return false
}

// runsPrograms says whether the first argument of a container is a program that
// is looked into.
func runsPrograms(text string) bool {
	name := path.Base(text)
	_, prefix := prefixPrograms[name]
	_, engine := enginePrograms[name]
	return prefix || engine || name == "env" ||
		strings.HasPrefix(name, "python") || slices.Contains(shells, name) || slices.Contains(launcherPrograms, name)
}

// looksServed says whether arguments are those of vllm serve, which images of
// vLLM run by themselves: flags, or a model and flags.
func looksServed(words []word) bool {
	if strings.HasPrefix(words[0].text, "-") {
		return true
	}
	return strings.Contains(words[0].text, "/") && (len(words) == 1 || strings.HasPrefix(words[1].text, "-"))
}

// containerOptions reads options from i on and returns the index of the image.
func (c *command) containerOptions(i int, b *box) int {
	for i < len(c.words) && strings.HasPrefix(c.words[i].text, "-") && c.words[i].text != "-" {
		w := c.words[i]
		i++
		if w.text == "--" {
			break
		}
		name, value, inline := strings.Cut(w.text, "=")
		if !strings.HasPrefix(w.text, "--") {
			name, value, inline = shortOption(w.text)
		}
		if name == "" || slices.Contains(containerSwitches, name) {
			continue
		}
		v := word{text: value, open: w.open, at: w.at, body: w.place(len(w.text) - len(value))}
		if !inline {
			if i == len(c.words) {
				break
			}
			v = c.words[i]
			i++
		}
		c.option(name, v, b)
	}
	return i
}

// shortOption reads -e, -eNAME=value, -it; the name is empty where all of it are
// switches.
func shortOption(text string) (name, value string, inline bool) {
	for i := 1; i < len(text); i++ {
		switch {
		case strings.IndexByte(containerValuedLetters, text[i]) >= 0:
			value = strings.TrimPrefix(text[i+1:], "=")
			return "-" + text[i:i+1], value, value != ""
		case strings.IndexByte(containerLetters, text[i]) < 0:
			return "", "", false
		}
	}
	return "", "", false
}

// option takes what matters of an option of a container.
func (c *command) option(name string, v word, b *box) {
	switch name {
	case "-e", "--env":
		c.setEnv(v, b)
	case "--env-file":
		c.shell.note(v.at, "the file %s is not read: the variables in it are not known", brief(v.text))
	case "--network", "--net":
		b.host = v.text == "host"
	case "--entrypoint":
		b.entrypoint = nil
		if v.text != "" {
			b.entrypoint = []word{v}
		}
	}
}

// setEnv takes NAME=value, or NAME, which passes on the caller's variable.
func (c *command) setEnv(v word, b *box) {
	n := nameLength(v.text)
	if n > 0 && n < len(v.text) && v.text[n] == '=' {
		b.env = append(b.env, v.setting(n))
		return
	}
	if e, ok := c.variable(v.text); ok {
		b.env = append(b.env, e)
		return
	}
	c.shell.variableNote(v.at, v.text, "the variable %s is passed on, and the text does not set it", brief(v.text))
}

// kubectl reads kubectl run and kubectl exec; false when it is neither.
func (c *command) kubectl() bool {
	at := slices.IndexFunc(c.words, func(w word) bool { return w.text == "--" })
	if at < 0 || at+1 == len(c.words) {
		return false
	}
	options, rest := c.words[1:at], c.words[at+1:]
	var b box
	var image word
	verb, command := "", false
	for i := 0; i < len(options); i++ {
		w := options[i]
		name, value, inline := strings.Cut(w.text, "=")
		switch name {
		case "run", "exec":
			if verb == "" {
				verb = name
			}
			continue
		case "--command":
			command = true
			continue
		case "--image", "--env", "--overrides":
		default:
			continue
		}
		v := word{text: value, open: w.open, at: w.at, body: w.place(len(w.text) - len(value))}
		if !inline && i+1 < len(options) {
			i++
			v = options[i]
		}
		if name == "--image" {
			image = v
			continue
		}
		c.podOption(name, v, &b)
	}
	if verb == "" {
		return false
	}
	c.image, c.env, c.alone, c.host = image.text, b.env, true, false
	if verb == "exec" || command {
		c.words = rest
		return true
	}
	return c.enter(image, nil, rest)
}

func (c *command) podOption(name string, v word, b *box) {
	if name == "--env" {
		c.setEnv(v, b)
		return
	}
	c.shell.note(v.at, "--overrides is not read: what it changes of the pod is not known")
}
