run() {
	tmux() { command tmux -S "$PWD/socket" -f /dev/null "$@"; }
	tmux new-session -d -s work -x 80 -y 24 'bash --norc -i'
	tmux list-sessions -F '#{session_name} #{session_windows}'
	tmux send-keys -t work 'sh -c "exit 3"; echo $? >status; tmux wait-for -S done' Enter
	tmux wait-for done
	cat status
	tmux new-window -d 'sh -c "echo window >text"; tmux wait-for -S done'
	tmux wait-for done
	cat text
	tmux kill-server
}
