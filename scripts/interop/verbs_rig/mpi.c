/* Exchanges between the ranks of an MPI job, each of which compares what it receives:
 *
 *   mpi ring STEPS             a number goes round, and each rank adds one
 *   mpi alltoall BYTES         MPI_Alltoall with 4 bytes from each rank to each, doubled up to BYTES
 *   mpi latency BYTES COUNT    messages to and fro between the first two ranks
 *   mpi bandwidth BYTES COUNT  windows of messages from the first rank to the second
 *
 * The first rank prints a line with the result. A rank that finds a wrong byte ends the job with status 1. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 32, WARM_UP = 10 };

static int rank, ranks;

static void require(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "rank %d: %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static char *memory(size_t bytes)
{
	char *found = calloc(1, bytes);
	require(found != NULL, "no memory");
	return found;
}

/* The byte at an offset of what one rank sends another: no other pair has the same bytes. */
static char byte_of(int from, int to, long size, long offset)
{
	return (char)(from * 61 + to * 17 + size + offset * 7 + offset / 251);
}

static void ring(long steps)
{
	int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
	long number = 0;
	for (long step = 0; step < steps; step++) {
		if (rank == step % ranks)
			MPI_Send(&number, 1, MPI_LONG, next, 0, MPI_COMM_WORLD);
		if (rank == (step + 1) % ranks) {
			MPI_Recv(&number, 1, MPI_LONG, previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			require(number == step, "the number is wrong");
			number++;
		}
	}
	if (rank == 0)
		printf("ring: %ld steps, %d ranks\n", steps, ranks);
}

static void all_to_all(long most)
{
	char *sent = memory((size_t)(most * ranks)), *received = memory((size_t)(most * ranks));
	for (long size = 4; size <= most; size *= 2) {
		for (int other = 0; other < ranks; other++)
			for (long offset = 0; offset < size; offset++)
				sent[other * size + offset] = byte_of(rank, other, size, offset);
		memset(received, 0, (size_t)(size * ranks));
		MPI_Alltoall(sent, (int)size, MPI_BYTE, received, (int)size, MPI_BYTE, MPI_COMM_WORLD);
		for (int other = 0; other < ranks; other++)
			for (long offset = 0; offset < size; offset++)
				require(received[other * size + offset] ==
						byte_of(other, rank, size, offset),
					"a byte of MPI_Alltoall is wrong");
	}
	if (rank == 0)
		printf("alltoall: 4 to %ld bytes, %d ranks, contents compared\n", most, ranks);
	free(sent);
	free(received);
}

static void fill(char *bytes, long size)
{
	for (long offset = 0; offset < size; offset++)
		bytes[offset] = byte_of(0, 1, size, offset);
}

static void latency(int size, long count)
{
	char *there = memory((size_t)size), *back = memory((size_t)size);
	double started = 0;
	fill(there, size);
	for (long turn = -WARM_UP; rank < 2 && turn < count; turn++) {
		if (turn == 0)
			started = MPI_Wtime();
		if (rank == 0) {
			MPI_Send(there, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
			MPI_Recv(back, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		} else {
			MPI_Recv(back, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			MPI_Send(back, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
		}
	}
	double elapsed = MPI_Wtime() - started;
	require(rank > 1 || memcmp(there, back, (size_t)size) == 0, "a byte of the last message is wrong");
	if (rank == 0)
		printf("latency: %.2f us one way, %d bytes\n", elapsed * 1e6 / (2.0 * (double)count), size);
	free(there);
	free(back);
}

static void bandwidth(int size, long count)
{
	char *there = memory((size_t)size), *here = memory((size_t)size * WINDOW);
	MPI_Request requests[WINDOW];
	double started = 0;
	fill(there, size);
	for (long turn = -1; rank < 2 && turn < count / WINDOW; turn++) {
		if (turn == 0)
			started = MPI_Wtime();
		for (int slot = 0; slot < WINDOW; slot++) {
			if (rank == 0)
				MPI_Isend(there, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &requests[slot]);
			else
				MPI_Irecv(here + (size_t)slot * (size_t)size, size, MPI_BYTE, 0, 0,
					  MPI_COMM_WORLD, &requests[slot]);
		}
		MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
		/* The receiver says that it has a whole window. */
		if (rank == 0)
			MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		else
			MPI_Send(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
	}
	double elapsed = MPI_Wtime() - started;
	for (int slot = 0; rank == 1 && slot < WINDOW; slot++)
		require(memcmp(here + (size_t)slot * (size_t)size, there, (size_t)size) == 0,
			"a byte of the last window is wrong");
	if (rank == 0)
		printf("bandwidth: %.2f Gb/s, %d bytes\n",
		       8e-9 * size * (double)(count / WINDOW * WINDOW) / elapsed, size);
	free(there);
	free(here);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	require(argc >= 3 && ranks >= 2, "usage: mpi ring|alltoall|latency|bandwidth NUMBER [COUNT]");
	long number = atol(argv[2]), count = argc > 3 ? atol(argv[3]) : 1000;
	if (!strcmp(argv[1], "ring"))
		ring(number);
	else if (!strcmp(argv[1], "alltoall"))
		all_to_all(number);
	else if (!strcmp(argv[1], "latency"))
		latency((int)number, count);
	else if (!strcmp(argv[1], "bandwidth"))
		bandwidth((int)number, count);
	else
		require(0, "unknown test");
	MPI_Finalize();
	return 0;
}
