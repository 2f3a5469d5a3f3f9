/*
 * The least that it costs to write small frames to many sockets: so many connections are accepted, and every
 * 12.5 ms a frame is written to each, for so many seconds. Prints the processor time that it used for that, s.
 *
 *     fan-out CONNECTIONS SECONDS FRAME_BYTES        prints its port first
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define STEP_NS 12500000L

static double used(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_utime.tv_sec + usage.ru_utime.tv_usec / 1e6 + usage.ru_stime.tv_sec + usage.ru_stime.tv_usec / 1e6;
}

int main(int count, char **arguments) {
  if (count != 4) return 2;
  int connections = atoi(arguments[1]), seconds = atoi(arguments[2]), bytes = atoi(arguments[3]);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, connections)) return 1;
  getsockname(listener, (struct sockaddr *)&address, &size);
  printf("%d\n", ntohs(address.sin_port));
  fflush(stdout);
  int *sockets = malloc(sizeof(int) * connections);
  char *frame = malloc(bytes), request[4096];
  memset(frame, 'x', bytes);
  memcpy(frame + bytes - 2, "\n\n", 2);
  for (int i = 0; i < connections; i++) {
    sockets[i] = accept(listener, NULL, NULL);
    int on = 1;
    setsockopt(sockets[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (read(sockets[i], request, sizeof request) < 0) return 1;
  }
  double before = used();
  struct timespec due;
  clock_gettime(CLOCK_MONOTONIC, &due);
  for (long step = 0; step < seconds * (1000000000L / STEP_NS); step++) {
    due.tv_nsec += STEP_NS;
    if (due.tv_nsec >= 1000000000L) due.tv_sec++, due.tv_nsec -= 1000000000L;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR) {}
    for (int i = 0; i < connections; i++)
      if (write(sockets[i], frame, bytes) != bytes) return 1;
  }
  printf("%.3f\n", used() - before);
  return 0;
}
